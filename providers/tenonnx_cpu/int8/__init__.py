"""Models of bytes: products, convolutions and what is between them, in integers."""
