"""Normalizations and Softmax: a block of threads for each row."""
