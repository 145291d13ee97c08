"""Convolutions, pooling, resizing and boxes."""
