"""Trees, support vectors and distances."""
