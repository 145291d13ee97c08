"""A folder for ``sys.path``: ``import onnxruntime`` finds tenonnx in it."""
