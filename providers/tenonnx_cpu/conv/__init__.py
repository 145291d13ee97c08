"""Convolutions and pooling of real numbers."""
