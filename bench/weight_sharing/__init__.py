"""The four scenarios that the weight registry exists for, beside onnxruntime."""
