"""Softmax, layer norms and others that normalize rows."""
