"""Every operator that onnxruntime runs on CPUs, alone, beside it."""
