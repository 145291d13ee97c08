"""Products with matrices of 8, 4 and 2 bits an element."""
