"""Products, convolutions and what is between them, in integers."""
