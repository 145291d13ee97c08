"""Models whose size is the point: written to a folder in each of the ways weights are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from bench.builder import BOOL, FLOAT, INT64, Builder, Feeds, Specs

MIB = 1 << 20


def stack(mib: int, *, padding: int = 0) -> tuple[onnx.ModelProto, Feeds]:
    """A chain of square matrix products whose weights take so many MiB together.

    Args:
        mib: MiB; sixteen matrices, or fewer of 4 MiB.
        padding: Lengthens the weights' names, and so the distance of their bytes in a file.
    """
    count = min(16, mib // 4)
    side = int((mib * MIB / 4 / count) ** 0.5)
    b = Builder()
    block = b.random.standard_normal((side, side), dtype=np.float32) / np.float32(side**0.5)
    x = "x"
    for layer in range(count):
        w = b.weight(np.roll(block, layer, axis=1), f"w{'_' * padding}{layer:02}")
        x = b("MatMul", x, w, out="y" if layer == count - 1 else "")
    proto = b.model({"x": (FLOAT, ["rows", side])}, {"y": (FLOAT, ["rows", side])})
    return proto, {"x": np.random.default_rng(1).standard_normal((1, side), dtype=np.float32)}


def save_external(proto: onnx.ModelProto, path: Path) -> None:
    """Save a model with its weights in a file beside it."""
    onnx.save(proto, path, save_as_external_data=True, location=f"{path.stem}.data")


def save_inline(mib: int, path: Path, *, offset: int) -> Feeds:
    """Save a stack with its weights inside, each at a file offset of ``offset`` modulo 4."""
    proto, feeds = stack(mib)
    first, second = _offsets(proto.SerializeToString(), proto)[:2]
    if padding := -(second - first) % 4:
        proto, feeds = stack(mib, padding=padding)
    proto.producer_name = "p" * 4
    first = _offsets(proto.SerializeToString(), proto)[0]
    proto.producer_name += "p" * ((offset - first) % 4)
    content = proto.SerializeToString()
    if {place % 4 for place in _offsets(content, proto)} != {offset}:
        raise AssertionError(f"{path.name}: its weights are not at {offset} modulo 4")
    path.write_bytes(content)
    return feeds


def _offsets(content: bytes, proto: onnx.ModelProto) -> list[int]:
    """The start of each weight's bytes in the serialized model."""
    offsets: list[int] = []
    for tensor in proto.graph.initializer:
        offsets.append(content.index(tensor.raw_data[:64], offsets[-1] if offsets else 0))
    return offsets


def tied_if(mib: int) -> tuple[onnx.ModelProto, list[Feeds]]:
    """One matrix in both branches of an If: looked up in one, multiplied by in the other.

    Returns:
        The model and the inputs that take it through the one branch and the other.
    """
    width = 1024
    rows = mib * MIB // 4 // width
    random = np.random.default_rng(0)
    table: NDArray[np.float32] = random.standard_normal((rows, width), dtype=np.float32)
    out = helper.make_tensor_value_info("out", FLOAT, None)
    look_up = helper.make_graph(
        [helper.make_node("Gather", ["W", "ids"], ["out"])], "up", [], [out]
    )
    transposed = helper.make_node("Transpose", ["W"], ["Wt"], perm=[1, 0])
    product = helper.make_node("MatMul", ["hidden", "Wt"], ["out"])
    project = helper.make_graph([transposed, product], "project", [], [out])
    inputs: Specs = {
        "embed": (BOOL, []),
        "ids": (INT64, ["length"]),
        "hidden": (FLOAT, ["length", width]),
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["embed"], ["y"], then_branch=look_up, else_branch=project)],
        "tied",
        [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(table, "W")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    hidden = random.standard_normal((1, width), dtype=np.float32)
    feeds = {"ids": np.array([7, 0, rows - 1]), "hidden": hidden}
    return proto, [{"embed": np.array(branch), **feeds} for branch in (True, False)]
