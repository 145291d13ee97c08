"""Models of bytes."""
