"""Measurements: tenonnx beside onnxruntime and the reference, and tenonnx's own parts."""
