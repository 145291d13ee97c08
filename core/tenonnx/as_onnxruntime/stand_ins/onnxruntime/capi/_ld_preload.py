"""A module that has nothing in onnxruntime either, where no library must be loaded first."""
