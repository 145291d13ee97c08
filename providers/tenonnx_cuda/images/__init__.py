"""Convolution, pooling, resizing and normalisation of images, and how they lie in memory."""
