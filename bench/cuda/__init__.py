"""Networks on a GPU, beside torch: eager, compiled, and replayed from a CUDA graph."""
