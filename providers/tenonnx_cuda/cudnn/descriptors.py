"""cuDNN's descriptors: the C interface of its backend, which its own frontends use.

A descriptor is created, given attributes, and finalized; then it says what it found out, or is an
attribute of another one. Names and numbers are those of ``cudnn_graph.h`` of cuDNN 9.
"""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any, Final, TypeAlias

FILE: Final = "libcudnn.so.9"

# A `cudnnBackendAttributeType_t`, and what C has for it.
Kind: TypeAlias = tuple[int, Any]

HANDLE: Final = (0, ctypes.c_void_p)
DATA_TYPE: Final = (1, ctypes.c_int)
BOOLEAN: Final = (2, ctypes.c_bool)
INT64_KIND: Final = (3, ctypes.c_int64)
FLOAT_KIND: Final = (4, ctypes.c_float)
VOID_PTR: Final = (6, ctypes.c_void_p)
CONVOLUTION_MODE: Final = (7, ctypes.c_int)
HEUR_MODE: Final = (8, ctypes.c_int)
NAN_PROPAGATION: Final = (10, ctypes.c_int)
NUMERICAL_NOTE: Final = (11, ctypes.c_int)
POINTWISE_MODE: Final = (14, ctypes.c_int)
BACKEND_DESCRIPTOR: Final = (15, ctypes.c_void_p)
REDUCTION_OPERATOR: Final = (18, ctypes.c_int)
BEHAVIOR_NOTE: Final = (19, ctypes.c_int)

# ``CUDNN_BACKEND_*_DESCRIPTOR``.
DESCRIPTORS: Final[dict[str, int]] = {
    "POINTWISE": 0,
    "CONVOLUTION": 1,
    "ENGINE": 2,
    "ENGINECFG": 3,
    "ENGINEHEUR": 4,
    "EXECUTION_PLAN": 5,
    "OPERATION_CONVOLUTION_FORWARD": 10,
    "OPERATION_CONVOLUTION_BACKWARD_DATA": 12,
    "OPERATION_POINTWISE": 13,
    "OPERATIONGRAPH": 15,
    "VARIANT_PACK": 16,
    "TENSOR": 17,
    "MATMUL": 18,
    "OPERATION_MATMUL": 19,
    "REDUCTION": 21,
    "OPERATION_REDUCTION": 22,
    "KERNEL_CACHE": 34,
}

# ``CUDNN_ATTR_*``.
CUDNN_ATTRIBUTES: Final[dict[str, tuple[int, Kind]]] = {
    "POINTWISE_MODE": (0, POINTWISE_MODE),
    "POINTWISE_MATH_PREC": (1, DATA_TYPE),
    "POINTWISE_NAN_PROPAGATION": (2, NAN_PROPAGATION),
    "POINTWISE_AXIS": (9, INT64_KIND),
    "CONVOLUTION_COMP_TYPE": (100, DATA_TYPE),
    "CONVOLUTION_CONV_MODE": (101, CONVOLUTION_MODE),
    "CONVOLUTION_DILATIONS": (102, INT64_KIND),
    "CONVOLUTION_FILTER_STRIDES": (103, INT64_KIND),
    "CONVOLUTION_POST_PADDINGS": (104, INT64_KIND),
    "CONVOLUTION_PRE_PADDINGS": (105, INT64_KIND),
    "CONVOLUTION_SPATIAL_DIMS": (106, INT64_KIND),
    "ENGINEHEUR_MODE": (200, HEUR_MODE),
    "ENGINEHEUR_OPERATION_GRAPH": (201, BACKEND_DESCRIPTOR),
    "ENGINEHEUR_RESULTS": (202, BACKEND_DESCRIPTOR),
    "ENGINECFG_ENGINE": (300, BACKEND_DESCRIPTOR),
    "EXECUTION_PLAN_HANDLE": (400, HANDLE),
    "EXECUTION_PLAN_ENGINE_CONFIG": (401, BACKEND_DESCRIPTOR),
    "EXECUTION_PLAN_WORKSPACE_SIZE": (402, INT64_KIND),
    "EXECUTION_PLAN_KERNEL_CACHE": (406, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_FORWARD_ALPHA": (700, FLOAT_KIND),
    "OPERATION_CONVOLUTION_FORWARD_BETA": (701, FLOAT_KIND),
    "OPERATION_CONVOLUTION_FORWARD_CONV_DESC": (702, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_FORWARD_W": (703, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_FORWARD_X": (704, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_FORWARD_Y": (705, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_BWD_DATA_ALPHA": (706, FLOAT_KIND),
    "OPERATION_CONVOLUTION_BWD_DATA_BETA": (707, FLOAT_KIND),
    "OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC": (708, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_BWD_DATA_W": (709, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_BWD_DATA_DX": (710, BACKEND_DESCRIPTOR),
    "OPERATION_CONVOLUTION_BWD_DATA_DY": (711, BACKEND_DESCRIPTOR),
    "OPERATION_POINTWISE_PW_DESCRIPTOR": (750, BACKEND_DESCRIPTOR),
    "OPERATION_POINTWISE_XDESC": (751, BACKEND_DESCRIPTOR),
    "OPERATION_POINTWISE_BDESC": (752, BACKEND_DESCRIPTOR),
    "OPERATION_POINTWISE_YDESC": (753, BACKEND_DESCRIPTOR),
    "OPERATION_POINTWISE_TDESC": (758, BACKEND_DESCRIPTOR),
    "OPERATIONGRAPH_HANDLE": (800, HANDLE),
    "OPERATIONGRAPH_OPS": (801, BACKEND_DESCRIPTOR),
    "OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED": (803, BOOLEAN),
    "TENSOR_BYTE_ALIGNMENT": (900, INT64_KIND),
    "TENSOR_DATA_TYPE": (901, DATA_TYPE),
    "TENSOR_DIMENSIONS": (902, INT64_KIND),
    "TENSOR_STRIDES": (903, INT64_KIND),
    "TENSOR_UNIQUE_ID": (906, INT64_KIND),
    "TENSOR_IS_VIRTUAL": (907, BOOLEAN),
    "TENSOR_IS_BY_VALUE": (908, BOOLEAN),
    "VARIANT_PACK_UNIQUE_IDS": (1000, INT64_KIND),
    "VARIANT_PACK_DATA_POINTERS": (1001, VOID_PTR),
    "VARIANT_PACK_WORKSPACE": (1003, VOID_PTR),
    "ENGINE_NUMERICAL_NOTE": (1303, NUMERICAL_NOTE),
    "ENGINE_BEHAVIOR_NOTE": (1305, BEHAVIOR_NOTE),
    "MATMUL_COMP_TYPE": (1500, DATA_TYPE),
    "OPERATION_MATMUL_ADESC": (1520, BACKEND_DESCRIPTOR),
    "OPERATION_MATMUL_BDESC": (1521, BACKEND_DESCRIPTOR),
    "OPERATION_MATMUL_CDESC": (1522, BACKEND_DESCRIPTOR),
    "OPERATION_MATMUL_DESC": (1523, BACKEND_DESCRIPTOR),
    "OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC": (1525, BACKEND_DESCRIPTOR),
    "OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC": (1526, BACKEND_DESCRIPTOR),
    "OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC": (1527, BACKEND_DESCRIPTOR),
    "REDUCTION_OPERATOR": (1600, REDUCTION_OPERATOR),
    "REDUCTION_COMP_TYPE": (1601, DATA_TYPE),
    "OPERATION_REDUCTION_XDESC": (1610, BACKEND_DESCRIPTOR),
    "OPERATION_REDUCTION_YDESC": (1611, BACKEND_DESCRIPTOR),
    "OPERATION_REDUCTION_DESC": (1612, BACKEND_DESCRIPTOR),
    "KERNEL_CACHE_OPERATION_GRAPH": (2400, BACKEND_DESCRIPTOR),
}

CUDNN_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "cudnnCreate": (ctypes.c_void_p,),
    "cudnnSetStream": (ctypes.c_void_p,) * 2,
    "cudnnBackendCreateDescriptor": (ctypes.c_int, ctypes.c_void_p),
    "cudnnBackendDestroyDescriptor": (ctypes.c_void_p,),
    "cudnnBackendFinalize": (ctypes.c_void_p,),
    "cudnnBackendSetAttribute": (
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
        *(ctypes.c_int64, ctypes.c_void_p),
    ),
    "cudnnBackendGetAttribute": (
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
        *(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p),
    ),
    "cudnnBackendExecute": (ctypes.c_void_p,) * 3,
}


class CuDNNError(RuntimeError):
    """cuDNN refused."""


class Backend:
    """cuDNN's functions, which raise what they otherwise return.

    Args:
        library: The shared library.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._functions = {name: getattr(library, name) for name in CUDNN_FUNCTIONS}
        for name, arguments in CUDNN_FUNCTIONS.items():
            self._functions[name].argtypes = arguments
        library.cudnnGetErrorString.restype = ctypes.c_char_p

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            CuDNNError: It returned another status than success.
        """
        if status := self._functions[name](*arguments):
            said = self._library.cudnnGetErrorString(status)
            raise CuDNNError(f"{name} has status {status}, {said.decode()}")

    def handle(self) -> Any:
        """Return a handle for the current device, which stays for as long as the process."""
        made = ctypes.c_void_p()
        self("cudnnCreate", ctypes.byref(made))
        return made

    def make(self, kind: str, **attributes: Any) -> Descriptor:
        """Return a descriptor with attributes, named without their kind's prefix."""
        made = Descriptor(self, kind)
        for name, value in attributes.items():
            made.set(name, value)
        self("cudnnBackendFinalize", made.address)
        return made


class Descriptor:
    """One of cuDNN's descriptors, and its parts.

    Args:
        backend: cuDNN.
        kind: One of ``DESCRIPTORS``.
    """

    def __init__(self, backend: Backend, kind: str) -> None:
        self._backend = backend
        self._prefix = kind.replace("BACKWARD", "BWD")
        self._parts: list[Descriptor] = []
        self.address = ctypes.c_void_p()
        backend("cudnnBackendCreateDescriptor", DESCRIPTORS[kind], ctypes.byref(self.address))

    def set(self, name: str, value: Any) -> None:
        """Set an attribute: a number, an address, a descriptor, or a sequence of them."""
        number, (kind, c_type) = CUDNN_ATTRIBUTES[f"{self._prefix}_{name}"]
        values = value if isinstance(value, tuple | list) else (value,)
        if kind == BACKEND_DESCRIPTOR[0]:
            self._parts += values
            values = [part.address.value for part in values]
        elif kind == HANDLE[0]:
            values = [handle.value for handle in values]
        array = (c_type * len(values))(*values)
        self._backend("cudnnBackendSetAttribute", self.address, number, kind, len(values), array)

    def numbers(self, name: str, most: int) -> list[int]:
        """Return an attribute's numbers, at most so many."""
        number, (kind, c_type) = CUDNN_ATTRIBUTES[f"{self._prefix}_{name}"]
        array = (c_type * most)()
        return list(array[: self._get(number, kind, most, array)])

    def fill(self, name: str, kind: str, most: int) -> list[Descriptor]:
        """Return an attribute's descriptors of a kind, at most so many."""
        number, (code, _) = CUDNN_ATTRIBUTES[f"{self._prefix}_{name}"]
        made = [Descriptor(self._backend, kind) for _ in range(most)]
        array = (ctypes.c_void_p * most)(*(one.address.value for one in made))
        for one in made:
            one._parts.append(self)
        return made[: self._get(number, code, most, array)]

    def _get(self, number: int, kind: int, most: int, array: Any) -> int:
        count = ctypes.c_int64()
        given = (self.address, number, kind, most, ctypes.byref(count), array)
        self._backend("cudnnBackendGetAttribute", *given)
        return min(count.value, most)

    def __del__(self) -> None:
        if self.address:
            self._backend("cudnnBackendDestroyDescriptor", self.address)


def load() -> Backend:
    """Return cuDNN: the one that is loaded or on the linker's path, or that pip installed.

    Raises:
        OSError: There is none.
    """
    try:
        return Backend(ctypes.CDLL(FILE))
    except OSError:
        for folder in _folders():
            if (path := folder / "lib" / FILE).exists():
                return Backend(ctypes.CDLL(str(path)))
        raise


def _folders() -> list[Path]:
    if importlib.util.find_spec("nvidia") is None:
        return []
    spec = importlib.util.find_spec("nvidia.cudnn")
    return [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
