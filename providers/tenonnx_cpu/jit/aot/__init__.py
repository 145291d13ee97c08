"""Building a library of kernels: which objects, from which sources, compiled and linked."""
