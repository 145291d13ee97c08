"""Softmax and norms over rows, and columns that are done at a time."""

# Columns of a softmax that are done at a time: some hundred elements of each stay cached.
SPAN = 128
