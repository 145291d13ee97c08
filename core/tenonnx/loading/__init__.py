"""Reading of models: their weights, and the parts that onnx_ir does not read."""
