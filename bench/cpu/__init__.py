"""The CPU provider against onnxruntime: whole models in turns, and kernels one by one."""
