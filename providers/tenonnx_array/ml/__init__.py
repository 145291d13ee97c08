"""The ai.onnx.ml operators: trees, linear models, support vectors, encoders and scalers."""
