"""Products with blockwise quantized matrices.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

# SwiGLU between the layers of experts, its gates and values in turn, or in two halves.
INTERLEAVED, BESIDE = -1, -2
