"""Products with what follows them, on a cuBLASLt of numpy's that reads what it is told."""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
import strict
from emulated import FakePlatform, provider_on, session
from test_cuda_products import DTYPES, Library, draw, matrices

from models import model, node, value
from tenonnx_cuda.kernel_selection import Site, Target, choices
from tenonnx_cuda.matmul.cublas import Products
from tenonnx_cuda.matmul.cublaslt import Found, LibraryObject, Lt, cublaslt
from tenonnx_cuda.namespace import DeviceNamespace
from tenonnx_cuda.options import CudaOptions

WIDTHS = {
    "MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8},
    "MatmulPreference": {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
}
"""Bytes of the attributes that are set, by cublasLt.h."""

OF_FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]


class LtLibrary:
    """cuBLASLt, as far as it is used.

    Attributes:
        alive: Its objects, by address.
        calls: The epilogues that ran.
        looked: The alignments that an algorithm was asked for.
    """

    def __init__(self, *, knows: bool = True, workspace: int = 0) -> None:
        self.alive: dict[int, tuple[str, Any, dict[int, int]]] = {}
        self.calls: list[int] = []
        self.looked: list[list[int]] = []
        self.sums: list[int] = []
        self._knows, self._workspace = knows, workspace
        self._addresses = itertools.count(16, 16)
        for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
            for what in ("Create", "SetAttribute", "Destroy"):
                self._offer(f"cublasLt{kind}{what}", getattr(self, f"_{what.lower()}"), kind)
        self.cublasLtMatmulAlgoGetHeuristic: Any = self._typed("AlgoGetHeuristic", self._look)
        self.cublasLtMatmul: Any = self._typed("", self._run)

    def _offer(self, name: str, function: Any, kind: str) -> None:
        setattr(self, name, lambda *given: function(kind, *given))

    def _typed(self, name: str, function: Any) -> Any:
        """Return a function whose arguments have types: ctypes cuts an address that has none."""

        def call(*given: Any) -> int:
            typed = getattr(self, f"cublasLtMatmul{name}").argtypes
            assert len(typed) == len(given)
            status: int = function(*given)
            return status

        return call

    def _create(self, kind: str, made: Any, *how: Any) -> int:
        made._obj.value = next(self._addresses)
        numbers = [getattr(number, "value", number) for number in how]
        self.alive[made._obj.value] = (kind, numbers, {})
        return 0

    def _setattribute(self, kind: str, at: Any, attribute: int, value: Any, size: Any) -> int:
        assert self.alive[at.value][0] == kind
        assert WIDTHS[kind][attribute] == size.value == ctypes.sizeof(value._obj)
        self.alive[at.value][2][attribute] = value._obj.value
        return 0

    def _destroy(self, kind: str, at: Any) -> int:
        assert self.alive.pop(at.value)[0] == kind
        return 0

    def _look(self, handle: Any, *given: Any) -> int:
        *objects, count, found, returned = given
        kinds = [self.alive[item.value][0] for item in objects]
        assert (handle, count) == ("handle", 1)
        assert kinds == ["MatmulDesc", *["MatrixLayout"] * 4, "MatmulPreference"]
        preference = self.alive[objects[-1].value][2]
        assert preference[3] == 2, "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE alone"
        self.looked.append([preference[i] for i in (5, 6, 7, 8)])
        found._obj.algorithm[0], found._obj.workspace = 42, self._workspace
        returned._obj.value = int(self._knows)
        return 0

    def _run(
        self, handle: Any, operation: Any, alpha: Any, a: int, of_a: Any, b: int, of_b: Any,
        beta: Any, c: int, of_c: Any, d: int, of_d: Any, found: Any, work: int, size: int, at: int,
    ) -> int:  # fmt: skip
        assert (handle, at, found._obj.algorithm[0]) == ("handle", 7, 42)
        assert size == self._workspace
        assert bool(work) == bool(size)
        kind, (sums, scale), attributes = self.alive[operation.value]
        assert (kind, scale) == ("MatmulDesc", 0)
        self.sums.append(sums)
        epilogue = attributes[7]
        self.calls.append(epilogue)
        first, second = self._matrix(a, of_a), self._matrix(b, of_b)
        y = self._matrix(d, of_d)
        product = (first.T if attributes[3] else first).astype(np.float64) @ (
            second.T if attributes[4] else second
        ).astype(np.float64)
        product *= alpha._obj.value
        if beta._obj.value:
            product += beta._obj.value * self._matrix(c, of_c).astype(np.float64)
        if epilogue & 4:
            product += matrices(attributes[8], y.dtype, (len(y),), (1,))[:, None].astype(np.float64)
        if epilogue & 2:
            product = np.maximum(product, 0)
        if epilogue & 32:
            product = gelu(product)
        y[...] = product.astype(y.dtype)
        return 0

    def _matrix(self, address: int, layout: Any) -> Any:
        _, (kind, rows, columns, apart), _ = self.alive[layout.value]
        assert apart >= rows
        return matrices(address, DTYPES[kind], (rows, columns), (1, apart))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def products_of(library: Any) -> Products:
    def device() -> Any:
        return SimpleNamespace(cublas_handle="handle")

    cuda = SimpleNamespace(Device=device, get_current_stream=lambda: SimpleNamespace(ptr=7))
    names = ("empty", "matmul", "broadcast_to", "ascontiguousarray")
    cupy = SimpleNamespace(cuda=cuda, **{name: getattr(strict.xp, name) for name in names})
    return Products(cupy, Library(), None if library is None else Lt(cupy, library))


def wide(x: Any) -> Any:
    return x.astype(np.float64)


def near(y: Any, expected: Any, dtype: Any) -> None:
    limit = {2: 2e-3, 4: 1e-6}[np.dtype(dtype).itemsize]
    limit *= 8 if dtype == ml_dtypes.bfloat16 else 1
    assert y.dtype == dtype
    np.testing.assert_allclose(wide(y), expected, rtol=limit, atol=limit * 4)


def on(products: Products) -> FakePlatform:
    platform = FakePlatform()
    platform.xp = DeviceNamespace(strict.xp, products)
    return platform


def gemm(products: Products, tf32: bool = False, **attributes: Any) -> Any:
    attrs = [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()]
    made = ir.Node("", "Gemm", [], attrs, version=13)
    graph = ir.Graph([], made.outputs, nodes=[made])
    call = choices()["", "Gemm"](
        Site(graph[0], Target(on(products), CudaOptions(use_tf32=tf32))), lambda *_: None
    )
    assert callable(call)
    return lambda *given: call(*map(strict.wrap, given)).held


@pytest.mark.parametrize("dtype", OF_FLOATS)
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (3, 1), (), None], ids=str)
@pytest.mark.parametrize("with_lt", [True, False])
def test_gemm(dtype: Any, turned: tuple[int, int], shape: Any, with_lt: bool) -> None:
    """Rounded once, with cuBLASLt and without: no copies of 32 bits."""
    a, b = draw(0, 3, 7).astype(dtype), draw(1, 7, 5).astype(dtype)
    library = LtLibrary() if with_lt else None
    run = gemm(products_of(library), alpha=0.5, transA=turned[0], transB=turned[1])
    given = [x.T.copy() if turn else x for x, turn in zip((a, b), turned, strict=True)]
    c = None if shape is None else draw(2, *shape).astype(dtype)
    y = run(*given, *([] if c is None else [c]))
    near(y, 0.5 * wide(a) @ wide(b) + (0 if c is None else wide(c)), dtype)
    if library is not None:
        assert library.calls == {1: [4], 2: [1] if shape == (3, 5) else [4]}.get(
            len(shape or ()), []
        ) or shape == (3, 1)


def test_a_factor_of_the_sum() -> None:
    a, b, c = draw(0, 3, 7), draw(1, 7, 5), draw(2, 3, 5)
    run = gemm(products_of(library := LtLibrary(workspace=64)), beta=2.0)
    near(run(a, b, c), wide(a) @ wide(b) + 2 * wide(c), np.float32)
    assert library.calls == [1]
    near(run(a, b, c[0]), wide(a) @ wide(b) + 2 * wide(c[0]), np.float32)
    assert library.calls == [1], "a bias has no factor"


def test_factors_are_rounded_if_they_may_be() -> None:
    a, b, c = draw(0, 3, 7), draw(1, 7, 5), draw(2, 5)
    products = products_of(library := LtLibrary())
    gemm(products, tf32=True)(a, b, c)
    gemm(products)(a, b, c)
    gemm(products, tf32=True)(*(x.astype(np.float16) for x in (a, b, c)))
    assert library.sums == [77, 68, 68]


def test_plans_are_kept_and_their_objects_go_with_them() -> None:
    a, b = draw(0, 3, 7), draw(1, 7, 5)
    products = products_of(library := LtLibrary())
    run = gemm(products)
    for seed in range(3):
        c = draw(seed, 5)
        near(run(a, b, c), wide(a) @ wide(b) + c, np.float32)
    assert len(library.looked) <= 3  # by how even the bias's address is
    assert all(even in (4, 8, 16, 32, 64, 128, 256) for even in library.looked[0])
    del products, run
    gc.collect()
    assert not library.alive


def test_without_an_algorithm_cublas_does_it(caplog: pytest.LogCaptureFixture) -> None:
    a, b, c = draw(0, 3, 7), draw(1, 7, 5), draw(2, 5)
    run = gemm(products_of(library := LtLibrary(knows=False)))
    with caplog.at_level(logging.INFO, "tenonnx"):
        for _ in range(2):
            near(run(a, b, c), wide(a) @ wide(b) + c, np.float32)
    said = [message for message in caplog.messages if "cuBLASLt has no algorithm" in message]
    assert 0 < len(said) == len(set(said))
    assert not library.calls


def test_a_status_is_an_error() -> None:
    library = LtLibrary()
    library.cublasLtMatmul = lambda *_: 13  # EXECUTION_FAILED
    with pytest.raises(RuntimeError, match="cuBLASLt has status 13"):
        gemm(products_of(library))(draw(0, 3, 7), draw(1, 7, 5), draw(2, 5))


def test_what_is_refused_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    a, b, c = draw(0, 3, 7), draw(1, 7, 5), draw(2, 5)
    library = LtLibrary()
    library.cublasLtMatmul = lambda *_: 15  # NOT_SUPPORTED
    run = gemm(products_of(library))
    for _ in range(8):
        near(run(a, b, c), wide(a) @ wide(b) + c, np.float32)
    # Results that lie otherwise are another problem.
    said = [message for message in caplog.messages if "cuBLASLt has status 15" in message]
    assert 0 < len(said) == len(set(said))


def test_it_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000)
    with caplog.at_level(logging.INFO, "tenonnx"):
        assert cublaslt(SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)), missing) is None
    assert "libcublasLt.so.13: cannot open" in caplog.text


def test_a_result_is_as_long_as_the_header_says() -> None:
    assert ctypes.sizeof(Found) == 96


GRAPHS = {
    "bias": ([node("Add", "p b", "y")], [4]),
    "bias, then a sum": ([node("Add", "b p", "q"), node("Add", "q r", "y")], [4]),
    "a sum, then an activation": ([node("Add", "r p", "q"), node("Relu", "q", "y")], [2]),
    "gelu by tanh": (
        [node("Add", "p b", "q"), node("Gelu", "q", "y", approximate="tanh")],
        [36],
    ),
    "gelu by erf": ([node("Add", "p b", "q"), node("Gelu", "q", "y")], []),
    "what cuBLASLt has not": ([node("Add", "p b", "q"), node("Tanh", "q", "y")], []),
    "twice itself": ([node("Add", "p p", "y")], []),
    "a column": ([node("Add", "p c", "y")], []),
    "a row of more axes": ([node("Add", "p o", "q"), node("Squeeze", "q", "y")], []),
    "three sums": ([node("Add", "p b", "q"), node("Add", "q r", "s"), node("Add", "s b", "y")], []),
    "two products": ([node("MatMul", "x V", "q"), node("Add", "p q", "y")], [1]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_follows_a_product(name: str) -> None:
    nodes, epilogues = GRAPHS[name]
    rows, shape = (2, 3), (2, 3, 5)
    weights = {"W": draw(1, 7, 5), "V": draw(5, 7, 5), "b": draw(2, 5), "r": draw(3, *shape),
               "c": draw(4, 3, 1), "o": draw(6, 1, 1, 1, 5)}  # fmt: skip
    nodes = [node("MatMul", "x W", "p"), *nodes]
    read = {name for made in nodes for name in made.input}
    made = model(
        nodes,
        [value("x", shape=(*rows, 7))],
        [value("y", shape=shape)],
        {name: weight for name, weight in weights.items() if name in read},
        opset=20,
    )
    library = LtLibrary()
    provider = provider_on(on(products_of(library)))
    x = draw(0, *rows, 7)
    (y,) = session(made, provider).run(None, {"x": x})
    (expected,) = session(made).run(None, {"x": x})
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert library.calls == epilogues


def test_a_factor_of_nothing_is_none_of_what_follows() -> None:
    nodes = [node("Gemm", "x W", "p", beta=0.5), node("Add", "p r", "q"), node("Relu", "q", "y")]
    weights = {"W": draw(1, 7, 5), "r": draw(3, 3, 5)}
    made = model(nodes, [value("x", shape=(3, 7))], [value("y", shape=(3, 5))], weights)
    library, x = LtLibrary(), draw(0, 3, 7)
    (y,) = session(made, provider_on(on(products_of(library)))).run(None, {"x": x})
    near(y, np.maximum(wide(x) @ wide(weights["W"]) + wide(weights["r"]), 0), np.float32)
    assert library.calls == [2]


@pytest.mark.parametrize("dtype", OF_FLOATS)
def test_what_follows_gemm(dtype: Any) -> None:
    nodes = [node("Gemm", "x W b", "p", transB=1), node("Relu", "p", "y")]
    weights = {"W": draw(1, 5, 7).astype(dtype), "b": draw(2, 5).astype(dtype)}
    element = ir.DataType.from_numpy(np.dtype(dtype)).value
    made = model(nodes, [value("x", element, (3, 7))], [value("y", element, (3, 5))], weights)
    x = draw(0, 3, 7).astype(dtype)
    library = LtLibrary()
    (y,) = session(made, provider_on(on(products_of(library)))).run(None, {"x": x})
    near(y, np.maximum(wide(x) @ wide(weights["W"]).T + wide(weights["b"]), 0), dtype)
    assert library.calls == [6]


def test_the_library_itself_takes_what_is_set() -> None:
    """Its objects need no device: it refuses attributes of another width."""
    try:
        library = next(filter(None, map(loaded, (13, 12))))
    except StopIteration:
        pytest.skip("no libcublasLt is found")
    numbers = {4: ctypes.c_int32(1), 8: ctypes.c_uint64(256)}
    sums = {"MatmulDesc": (68, 0), "MatmulPreference": ()}
    for kind, attributes in WIDTHS.items():
        made = LibraryObject(library, kind, *sums[kind])
        for attribute, width in attributes.items():
            made.set(attribute, numbers[width])
        with pytest.raises(RuntimeError, match="status 7"):
            made.set(min(attributes), ctypes.c_uint8(1))
    LibraryObject(library, "MatrixLayout", 2, *map(ctypes.c_uint64, (5, 7)), ctypes.c_int64(5))


def loaded(major: int) -> Any:
    try:
        return ctypes.CDLL(f"libcublasLt.so.{major}")
    except OSError:
        return None
