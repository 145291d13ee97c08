"""Language models of folders, beside onnxruntime-genai: the same tokens in turns."""
