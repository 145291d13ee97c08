"""Runs whose shapes change, and graphs of many nodes."""
