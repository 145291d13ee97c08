"""What reading a model needs: finding its weights, and what onnx_ir does not read."""
