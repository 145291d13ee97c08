"""Codes of functions that programs alone apply, beyond those of ``opcodes``."""

from __future__ import annotations

# Functions without parameters.
LOG, SIN, COS, TAN, ASIN, ACOS, ATAN, SINH, COSH, ASINH, ACOSH, ATANH = range(30, 42)

# Activations, most of them with parameters.
ELU, CELU, SOFTPLUS, MISH, SHRINK = range(42, 47)

# The first of the codes.
FUNCTIONS = LOG
