"""What onnxruntime's Python interface has around a session, with its names and meanings."""
