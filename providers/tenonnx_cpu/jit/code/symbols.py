"""The symbols and the text by which libraries of kernels and processes know each other.

Imported without numba.
"""

from __future__ import annotations

import sys

import numpy as np

# Symbols that every library has: a text, and a word for the address of numpy's type of arrays.
IDENTITY, NDARRAY = "tenonnx_identity", "tenonnx_ndarray"


def binary_interface() -> str:
    """Return what a library has been built for besides a target CPU.

    Kernels read numpy's arrays, whose beginning its major version fixes. Objects of free-threaded
    builds of CPython have a longer one.
    """
    numpy = np.__version__.partition(".")[0]
    return f"{sys.implementation.name} {object.__basicsize__} numpy {numpy}"
