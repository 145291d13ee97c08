"""Products by cuBLAS itself.

cupy calls cuBLAS, but not while a graph is captured. It widens several matrices of float16 to
float32 first, and multiplies those of bfloat16 by a kernel for integers.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import itertools
import logging
import math
from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.capture.tracer import allocate, cannot_capture, start
from tenonnx_cuda.matmul.cublaslt import Lt, cublaslt
from tenonnx_cuda.matmul.epilogue import Epilogue

# cudaDataType: CUDA_R_32F, CUDA_R_64F, CUDA_R_16F and CUDA_R_16BF.
CUDA_DATA_TYPES: Final = {
    np.dtype(np.float32): 0,
    np.dtype(np.float64): 1,
    np.dtype(np.float16): 2,
    np.dtype(ml_dtypes.bfloat16): 14,
}

# CUBLAS_COMPUTE_32F, _64F and _32F_FAST_TF32, and CUBLAS_GEMM_DEFAULT.
SUMS_32, SUMS_64, ROUNDED_FACTORS, DEFAULT = 68, 70, 77, -1

# CUDA_R_32F and CUDA_R_64F.
FLOAT32, FLOAT64 = 0, 1

# CUBLAS_TF32_TENSOR_OP_MATH.
TF32 = 3

log = logging.getLogger("tenonnx")

# Whether a matrix is transposed, elements from a row of it to the next, and to the next matrix.
Places = tuple[int, int, int]


class Products:
    """cuBLAS on a device.

    Args:
        cupy: The module, whose handles are used.
        library: The shared library that cupy has loaded.
        lt: cuBLASLt, if there is one.
        rounds: Returns whether a handle's factors of float32 may be rounded to 10 bits.
    """

    def __init__(
        self,
        cupy: Any,
        library: Any,
        lt: Lt | None = None,
        rounds: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        self._cupy = cupy
        self._rounds = rounds
        self.lt = lt
        self._set_stream = library.cublasSetStream_v2
        self._set_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._product = library.cublasGemmStridedBatchedEx
        number, pointer, wide = ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong
        matrix = [pointer, number, number, wide]
        self._product.argtypes = [pointer, *[number] * 5, pointer, *matrix, *matrix, pointer,
                                  *matrix, *[number] * 3]  # fmt: skip

    def matmul(self, a: Array, b: Array, out: Array | None = None) -> Array:
        """Return products as numpy's matmul does; others than of floats are left to cupy."""
        kind = CUDA_DATA_TYPES.get(a.dtype)
        if kind is None or a.dtype != b.dtype or not a.size or not b.size or not a.ndim * b.ndim:
            cannot_capture()
            return self._cupy.matmul(a, b) if out is None else self._cupy.matmul(a, b, out=out)
        if out is not None:
            cannot_capture()
            out[...] = self.matmul(a, b)
            return out
        if a.ndim == 1:
            return self.matmul(a[None], b)[..., 0, :] if b.ndim > 1 else self.matmul(a[None], b)[0]
        if b.ndim == 1:
            return self.matmul(a, b[:, None])[..., 0]
        return self.scaled(a, b)

    def scaled(self, a: Array, b: Array, alpha: float = 1.0) -> Array:
        """Return ``alpha * a @ b`` of matrices of one element type, rounded to it once."""
        rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
        if inner != b.shape[-2]:
            raise ValueError(f"matrices {a.shape} and {b.shape} do not fit each other")
        if b.ndim == 2 and a.ndim > 2:  # one product of all rows
            flat = a.reshape(-1, inner)
            return self.scaled(flat, b, alpha).reshape(*a.shape[:-1], columns)
        outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        y = allocate(self._cupy, (*outer, rows, columns), a.dtype)
        self.into(a, b, y, alpha, 0.0)
        return y

    def gemm(
        self, a: Array, b: Array, c: Array | None = None, alpha: float = 1.0, beta: float = 1.0
    ) -> Array:
        """Return ``alpha * a @ b + beta * c`` of matrices, rounded once; c may be broadcast."""
        if c is None or beta == 0:
            return self.scaled(a, b, alpha)
        y = self._cupy.empty((a.shape[0], b.shape[1]), a.dtype)
        cannot_capture()
        y[...] = c
        self.into(a, b, y, alpha, beta)
        return y

    def ended(self, a: Array, b: Array, epilogue: Epilogue, *, tf32: bool = False) -> Array | None:
        """Return a product and what becomes of it; ``None`` where that is not one call.

        Args:
            a: Rows [..., K] of float32, float16 or bfloat16.
            b: A matrix [K, N] of the same.
            epilogue: What becomes of it.
            tf32: Let factors of float32 be rounded to 10 bits.
        """
        if self.lt is None or not a.size or not b.size:
            return None
        y = allocate(self._cupy, (*a.shape[:-1], b.shape[1]), a.dtype)
        flat, shape = a.reshape(-1, a.shape[-1]), (y.size // b.shape[1], b.shape[1])
        (left, of_left), (right, of_right) = (self._placed(x, ()) for x in (flat, b))
        bias, added = (
            None if x is None else self._cupy.ascontiguousarray(x)
            for x in (epilogue.bias, epilogue.added)
        )
        added = None if added is None else added.reshape(shape)
        flat_epilogue = dataclasses.replace(epilogue, bias=bias, added=added)
        places = of_left[:2], of_right[:2]
        kind, result = CUDA_DATA_TYPES[a.dtype], y.reshape(shape)
        done = self.lt.product(left, right, result, places, flat_epilogue, kind=kind, tf32=tf32)
        return y if done else None

    def into(self, a: Array, b: Array, y: Array, alpha: float, beta: float) -> None:
        """Make y ``alpha * a @ b + beta * y``; its rows may lie apart, its matrices not.

        Of factors of 16 bits it may be float32.
        """
        rows, inner, columns = y.shape[-2], a.shape[-1], y.shape[-1]
        outer, kind = y.shape[:-2], CUDA_DATA_TYPES[a.dtype]
        (a, of_a), (b, of_b) = (self._placed(x, outer) for x in (a, b))
        apart = y.strides[-2] // y.itemsize if rows > 1 else columns
        scalar: Any = ctypes.c_double if kind == FLOAT64 else ctypes.c_float
        sums = SUMS_64 if kind == FLOAT64 else SUMS_32
        if kind == FLOAT32 and self._rounds(self._cupy.cuda.Device().cublas_handle):
            sums = ROUNDED_FACTORS  # said here, for a repetition does not set the handle's mode
        factors = scalar(alpha), scalar(beta)
        cuda, what = self._cupy.cuda, f"{a.shape} by {b.shape}"
        # cuBLAS goes by columns, so it is given the transposed product of transposed factors.
        before = of_b[0], of_a[0], columns, rows, inner, ctypes.byref(factors[0])
        after = CUDA_DATA_TYPES[y.dtype], apart, rows * apart, math.prod(outer), sums, DEFAULT
        weigh = ctypes.byref(factors[1])

        def multiply(left: int, right: int, result: int) -> None:
            handle = cuda.Device().cublas_handle
            failed = self._set_stream(handle, cuda.get_current_stream().ptr) or self._product(
                handle, *before, right, kind, *of_b[1:], left, kind, *of_a[1:], weigh, result,
                *after,
            )  # fmt: skip
            if failed:
                raise RuntimeError(f"cuBLAS has status {failed}, of {what}")

        start(multiply, a, b, y)

    def _placed(self, x: Array, outer: tuple[int, ...]) -> tuple[Array, Places]:
        """Return matrices that cuBLAS can read, copied if they have to be, and where they are."""
        count = math.prod(x.shape[:-2])
        if count not in (1, math.prod(outer)):
            x = self._cupy.broadcast_to(x, (*outer, *x.shape[-2:]))
            count = math.prod(outer)
        if (places := placed(x.shape, x.strides, x.itemsize, count)) is None:
            x = self._cupy.ascontiguousarray(x)
            places = placed(x.shape, x.strides, x.itemsize, count)
            assert places is not None, "contiguous matrices lie evenly"
        return x, places


def placed(
    shape: tuple[int, ...], strides: tuple[int, ...], width: int, count: int
) -> Places | None:
    """Return where matrices are; ``None`` if not their rows or columns lie whole, and evenly."""
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    apart = 0
    if count > 1:
        axes = [i for i in range(len(shape) - 2) if shape[i] > 1]
        apart = strides[axes[-1]]
        even = all(strides[i] == strides[j] * shape[j] for i, j in itertools.pairwise(axes))
        if not even or apart % width or apart < 0:
            return None
    for transposed, (step, one, length, others) in enumerate(
        ((down, across, columns, rows), (across, down, rows, columns))
    ):
        along = one == width or length == 1
        wide = step if others > 1 else length * width
        if along and wide >= length * width and wide % width == 0:
            return transposed, wide // width, apart // width
    return None


def products(cupy: Any) -> Products | None:
    """Return cuBLAS as cupy has loaded it; ``None``, with a warning, if it is not found."""
    cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
    try:
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        library = ctypes.CDLL(f"libcublas.so.{major}")
        return Products(cupy, library, cublaslt(cupy), lambda h: cublas.getMathMode(h) == TF32)
    except (OSError, AttributeError) as error:
        log.warning("products are left to cupy, which does not let them be captured: %s", error)
        return None
