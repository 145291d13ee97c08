"""Softmax and norms over rows."""
