"""Products with their bias and activation in one step are the float64 formula's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, session
from scipy import special

from models import node
from tenonnx_cpu.matmul.product import GEMM_OF_KIND, GEMV, product, request

FUNCTIONS: dict[str, Any] = {
    "none": lambda z: z,
    "Relu": lambda z: np.maximum(z, 0),
    "LeakyRelu": lambda z: np.where(z < 0, 0.2 * z, z),
    "Sigmoid": special.expit,
    "Tanh": np.tanh,
    "Gelu": lambda z: z * special.ndtr(z),
}
SHAPES = [(1, 40, 70), (5, 33, 31), (64, 100, 96), (130, 96, 64)]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("rows", "depth", "columns"), SHAPES)
@pytest.mark.parametrize("form", ["MatMul", "flipped", "Gemm", "turned"])
@pytest.mark.parametrize("threads", [1, 4])
def test_one_step(
    name: str, rows: int, depth: int, columns: int, form: str, threads: int, monkeypatch: Any
) -> None:
    kernels = [Watch(kernel, monkeypatch) for kernel in (GEMM_OF_KIND["f32"], GEMV["f32"])]
    x, w, b = floats(rows, depth), floats(depth, columns, seed=1) / 8, floats(columns, seed=2)
    weights = {"w": w.T.copy() if form == "turned" else w, "b": b}
    if form in ("Gemm", "turned"):
        nodes = [node("Gemm", "x w b", "t", transB=int(form == "turned"))]
    else:
        nodes = [
            node("MatMul", "x w", "s"),
            node("Add", "b s" if form == "flipped" else "s b", "t"),
        ]
    if name != "none":
        more = {"alpha": 0.2} if name == "LeakyRelu" else {}
        nodes.append(node(name, "t", "y", **more))
    one = session(nodes, {"x": x}, nodes[-1].output[0], weights, threads=threads)
    y = one.run(None, {"x": x})[0]
    expected = FUNCTIONS[name](x.astype(np.float64) @ w + b)
    assert np.abs(y - expected).max() < 1e-5
    assert len(one.plan.steps) == 1
    assert sum(kernel.calls for kernel in kernels) == 1


@pytest.mark.parametrize("threads", [1, 3, 4])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(120, 530, 300), (250, 300, 1024), (60, 1024, 100)]
)
def test_columns_shared_among_threads_are_summed_by_each(
    rows: int, depth: int, columns: int, threads: int
) -> None:
    request("f32")
    x, b = floats(rows, depth), floats(columns, seed=2)
    room = floats(depth * columns + 16, seed=1)
    for shift in (0, 1, 15):
        w = room[shift : shift + depth * columns].reshape(depth, columns)
        y = product(x, w, threads, b)
        assert y is not None
        assert np.abs(y - (x.astype(np.float64) @ w + b)).max() < 2e-4


@pytest.mark.parametrize("rows", [6, 14, 15, 41])
@pytest.mark.parametrize(("depth", "columns"), [(530, 300), (64, 1024), (1100, 33)])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_few_rows_read_the_matrix_in_place(
    rows: int, depth: int, columns: int, threads: int
) -> None:
    request("f32")
    room, b = floats(2, depth * columns + 16, seed=1), floats(columns, seed=2)
    x = floats(2, rows, depth)
    for shift in (0, 3):
        w = room[:, shift : shift + depth * columns].reshape(2, depth, columns)
        turned = room[:, shift : shift + depth * columns].reshape(2, columns, depth)
        turned = turned.swapaxes(1, 2)
        pairs = [(x[0], w[0]), (x, w), (np.asfortranarray(x[0]), w[0]), (x, turned)]
        for left, right in pairs:
            y = product(left, right, threads, b)
            assert y is not None
            assert np.abs(y - (left.astype(np.float64) @ right + b)).max() < 4e-4


def test_what_others_read_is_left_alone() -> None:
    x, weights = floats(4, 8), {"w": floats(8, 6, seed=1), "b": floats(6, seed=2)}
    nodes = [
        node("MatMul", "x w", "s"),
        node("Add", "s b", "t"),
        node("Relu", "t", "y"),
        node("Neg", "s", "z"),
    ]
    y, t, z = session(nodes, {"x": x}, "y t z", weights).run(None, {"x": x})
    s = x.astype(np.float64) @ weights["w"]
    for found, expected in ((z, -s), (t, s + weights["b"]), (y, np.maximum(s + weights["b"], 0))):
        assert np.abs(found - expected).max() < 1e-5


def test_float64_takes_numpys_way() -> None:
    x, weights = floats(3, 8).astype(np.float64), {"w": np.eye(8), "b": np.ones(8)}
    nodes = [node("MatMul", "x w", "s"), node("Add", "s b", "y")]
    double = dict.fromkeys("xy", 11)
    y = session(nodes, {"x": x}, "y", weights, kinds=double).run(None, {"x": x})[0]
    assert np.array_equal(y, x + 1)
