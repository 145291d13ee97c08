"""The names of onnxruntime's Python interface around a session, with the same meanings."""
