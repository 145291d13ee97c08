"""The CPU provider's kernels against onnxruntime, in one process and in turn."""
