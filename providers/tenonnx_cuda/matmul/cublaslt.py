"""Products by cuBLASLt, with a bias, a sum and an activation in the same call.

It works by columns, as cuBLAS does: its first factor is our second one, transposed.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx_cuda.capture.tracer import allocate, start
from tenonnx_cuda.matmul.epilogue import Epilogue

log = logging.getLogger("tenonnx")

# CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 and CUDA_R_32F.
SUMS, ROUNDED_FACTORS, FLOAT32 = 68, 77, 0

# CUBLASLT_MATMUL_DESC_TRANSA and _TRANSB, _EPILOGUE and _BIAS_POINTER.
TRANSPOSES, EPILOGUE, BIAS_POINTER = (3, 4), 7, 8

# CUBLASLT_EPILOGUE_DEFAULT and _BIAS.
NO_EPILOGUE, WITH_BIAS = 1, 4

# CUBLASLT_EPILOGUE_RELU and _GELU, which is the form with tanh.
EPILOGUES: Final = {"": 0, "Relu": 2, "GeluTanh": 32}

# CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, _REDUCTION_SCHEME_MASK and, of the two factors, the sum
# and the result, _MIN_ALIGNMENT_A_BYTES and so on.
MOST_WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)

# CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: no parts of sums are rounded to 16 bits.
IN_FLOAT32: Final = 2

# Bytes that cuBLAS itself takes on large devices.
WORKSPACE_BYTES: Final = 32 << 20

# CUBLAS_STATUS_INVALID_VALUE, _ARCH_MISMATCH and _NOT_SUPPORTED.
REFUSALS: Final = (7, 8, 15)

# Shapes whose plans are kept.
MAX_PLANNED_SHAPES: Final = 1024


class RefusedError(RuntimeError):
    """The library did not run what it had found."""


class Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Problem:
    """The key by which the library chooses an algorithm.

    Attributes:
        kind: The elements, as cudaDataType.
        sums: How they are summed, as cublasComputeType_t.
        shape: Rows, columns and the length of the products' sums.
        transposed: Of both factors.
        apart: Elements from a row of each factor to the next.
        epilogue: As cublasLtEpilogue_t.
        alignments: Of both factors, the sum, the result and the bias, in bytes.
    """

    kind: int
    sums: int
    shape: tuple[int, int, int]
    transposed: tuple[int, int]
    apart: tuple[int, int]
    epilogue: int
    alignments: tuple[int, ...]


class LibraryObject:
    """An object of the library's, which goes with this one."""

    def __init__(self, library: Any, kind: str, *how: Any) -> None:
        self._destroy = getattr(library, f"cublasLt{kind}Destroy")
        self._set = getattr(library, f"cublasLt{kind}SetAttribute")
        self.address = ctypes.c_void_p()
        check(getattr(library, f"cublasLt{kind}Create")(ctypes.byref(self.address), *how))

    def set(self, attribute: int, value: Any) -> None:
        """Set an attribute, to a number of the width that it has."""
        size = ctypes.c_size_t(ctypes.sizeof(value))
        check(self._set(self.address, attribute, ctypes.byref(value), size))

    def __del__(self) -> None:
        if self.address:
            self._destroy(self.address)


@dataclass
class MatMulPlan:
    """The solution of a problem.

    Attributes:
        operation: Its descriptor.
        layouts: Those of both factors and of the result.
        found: The algorithm, and the working memory that it takes.
        bias: The address that the operation has of it.
        refused: The library did not run what it had found.
    """

    operation: LibraryObject
    layouts: tuple[LibraryObject, LibraryObject, LibraryObject]
    found: Found
    bias: int
    refused: bool = False


class Lt:
    """cuBLASLt on a device.

    Args:
        cupy: The module, whose handles of cuBLAS serve as the library's own.
        library: The shared library, which is cuBLAS's as well.
    """

    def __init__(self, cupy: Any, library: Any) -> None:
        self._cupy = cupy
        self._library = library
        self._running = threading.Lock()
        self._plan = functools.lru_cache(MAX_PLANNED_SHAPES)(self._planned)
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._run = library.cublasLtMatmul
        self._run.argtypes = [*[pointer] * 14, ctypes.c_size_t, pointer]
        self._look = library.cublasLtMatmulAlgoGetHeuristic
        self._look.argtypes = [*[pointer] * 7, number, pointer, pointer]

    def product(
        self,
        left: Array,
        right: Array,
        y: Array,
        places: tuple[tuple[int, int], tuple[int, int]],
        epilogue: Epilogue,
        *,
        kind: int,
        tf32: bool,
    ) -> bool:
        """Write ``left @ right`` and what becomes of it to y.

        Args:
            left: A matrix.
            right: A matrix.
            y: Where the result goes, by rows.
            places: Of both, whether it lies transposed, and how far apart its rows are.
            epilogue: What becomes of it; what is added lies by rows, without gaps.
            kind: The elements, as cudaDataType.
            tf32: Let factors of float32 be rounded to 10 bits.

        Returns:
            Whether the library does it.
        """
        added, bias = epilogue.added, epilogue.bias
        base = y if added is None else added
        follows = EPILOGUES[epilogue.activation] | (0 if bias is None else WITH_BIAS)
        # The factors change places: the library reads by columns, and y.T is right.T @ left.T.
        problem = Problem(
            kind,
            ROUNDED_FACTORS if tf32 and kind == FLOAT32 else SUMS,
            (*y.shape, left.shape[1]),
            (places[1][0], places[0][0]),
            (places[1][1], places[0][1]),
            follows or NO_EPILOGUE,
            tuple(alignment(x) for x in (right, left, base, y, bias)),
        )
        plan = self._plan(problem)
        if plan is None or plan.refused:
            return False
        try:
            size = plan.found.workspace
            workspace = allocate(self._cupy, (size,), np.uint8) if size else None
            multiply = self._starting(plan, epilogue.alpha, 0.0 if added is None else epilogue.beta)
            start(multiply, left, right, base, y, bias, workspace)
        except RefusedError as error:
            log.warning("%s for %s, which cuBLAS computes", error, problem)
            plan.refused = True
            return False
        return True

    def _starting(self, plan: MatMulPlan, alpha: float, beta: float) -> Callable[..., None]:
        """Return what starts a plan on the addresses of its matrices and its bias."""
        cuda = self._cupy.cuda
        of_right, of_left, of_y = (layout.address for layout in plan.layouts)
        factors = ctypes.c_float(alpha), ctypes.c_float(beta)
        first, second, found = (ctypes.byref(each) for each in (*factors, plan.found))
        size, operation = plan.found.workspace, plan.operation

        def multiply(left: int, right: int, base: int, y: int, bias: int, space: int) -> None:
            with self._running:  # a plan is every thread's, and has one bias at a time
                if bias != plan.bias:
                    operation.set(BIAS_POINTER, ctypes.c_void_p(bias))
                    plan.bias = bias
                status = self._run(
                    cuda.Device().cublas_handle, operation.address, first, right, of_right, left,
                    of_left, second, base, of_y, y, of_y, found, space, size,
                    cuda.get_current_stream().ptr,
                )  # fmt: skip
            if status in REFUSALS:
                raise RefusedError(f"cuBLASLt has status {status}")
            check(status)

        return multiply

    def _planned(self, problem: Problem) -> MatMulPlan | None:
        """Return what the library thinks fastest; ``None``, with a line in the log, if nothing."""
        rows, columns, inner = problem.shape
        operation = LibraryObject(self._library, "MatmulDesc", problem.sums, FLOAT32)
        for attribute, transposed in zip(TRANSPOSES, problem.transposed, strict=True):
            operation.set(attribute, ctypes.c_int32(transposed))
        operation.set(EPILOGUE, ctypes.c_uint32(problem.epilogue))
        bias = problem.alignments[-1]
        if bias:  # an address that is as even: nobody reads there yet
            operation.set(BIAS_POINTER, ctypes.c_void_p(bias))
        shapes = (columns, inner), (inner, rows), (columns, rows)
        turned = (*problem.transposed, 0)
        layouts = [
            LibraryObject(
                self._library, "MatrixLayout", problem.kind,
                *(ctypes.c_uint64(n) for n in (shape[::-1] if turn else shape)),
                ctypes.c_int64(apart),
            )
            for shape, turn, apart in zip(shapes, turned, (*problem.apart, columns), strict=True)
        ]  # fmt: skip
        preference = LibraryObject(self._library, "MatmulPreference")
        preference.set(MOST_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
        preference.set(REDUCTIONS, ctypes.c_uint32(IN_FLOAT32))
        for attribute, even in zip(ALIGNMENTS, problem.alignments, strict=False):
            preference.set(attribute, ctypes.c_uint32(even))
        found, count = Found(), ctypes.c_int()
        status = self._look(
            self._cupy.cuda.Device().cublas_handle, operation.address,
            *(layout.address for layout in (*layouts, layouts[-1])), preference.address, 1,
            ctypes.byref(found), ctypes.byref(count),
        )  # fmt: skip
        if status or not count.value or found.status:
            log.info("cuBLASLt has no algorithm for %s: status %s", problem, status)
            return None
        return MatMulPlan(operation, (layouts[0], layouts[1], layouts[2]), found, bias)


def alignment(array: Array | None) -> int:
    """Return of how many bytes an array's address is a multiple, up to 256; 0 without one."""
    return 0 if array is None else math.gcd(array.data.ptr, 256)


def check(status: int) -> None:
    """Raise what a status says.

    Raises:
        RuntimeError: It is not 0.
    """
    if status:
        raise RuntimeError(f"cuBLASLt has status {status}")


def cublaslt(cupy: Any, load: Callable[[str], Any] = ctypes.CDLL) -> Lt | None:
    """Return cuBLASLt, which lies beside cuBLAS; ``None``, with a line in the log, without it."""
    try:
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        return Lt(cupy, load(f"libcublasLt.so.{major}"))
    except (OSError, AttributeError) as error:
        log.info("biases and activations stay kernels of their own: %s", error)
        return None
