"""Runs recorded as CUDA graphs: which steps, by which shapes, and how they are replayed."""
