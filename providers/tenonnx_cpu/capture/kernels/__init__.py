"""Replay: calls kernel after kernel, from a list."""
