"""cuDNN, through the C interface of its backend."""
