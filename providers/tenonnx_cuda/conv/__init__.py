"""Convolution, pooling, resizing and normalization of images, and how they lie in memory."""
