"""A folder for ``sys.path``: ``import onnxruntime_genai`` finds this package in it."""
