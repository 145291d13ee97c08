"""A folder's model with inputs for adapters, and adapters for it: random ones, of one rank."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tenonnx
import tenonnx_generate as og

RANK, ROWS, PROMPT, NEW = 8, 4, 32, 48
PRODUCTS = ("MatMul", "MatMulNBits")


def write_adapted(source: Path, folder: Path) -> list[tuple[str, int, int]]:
    """Write a copy of a folder whose products of weights take matrices of adapters as inputs.

    Returns:
        The name, rows and columns of each such product: all but the vocabulary's.
    """
    folder.mkdir()
    for file in source.iterdir():
        if file.name != "model.onnx":
            linked(file, folder / file.name)
    model = onnx.load(source / "model.onnx", load_external_data=False)
    logits = model.graph.output[0].name
    shapes = {each.name: tuple(each.dims) for each in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in shapes:
            shapes[node.output[0]] = shapes[node.input[0]]
    nodes: list[Any] = []
    found: list[tuple[str, int, int]] = []
    for node in model.graph.node:
        nodes.append(node)
        product = product_sizes(node, shapes)
        if product is not None and node.output[0] != logits:
            name = f"{len(found)}"
            nodes += beside(node, name)
            found.append((name, *product))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    kind = onnx.TensorProto.FLOAT
    for name, rows, columns in found:
        sizes: dict[str, list[int | str | None]] = {"A": [rows, "rank"], "B": ["rank", columns]}
        for which, dims in sizes.items():
            info = onnx.helper.make_tensor_value_info(f"lora_{which}.{name}", kind, dims)
            model.graph.input.append(info)
    onnx.save(model, folder / "model.onnx")
    return found


def product_sizes(node: Any, shapes: dict[str, tuple[int, ...]]) -> tuple[int, int] | None:
    """Return rows and columns of a product's weights; nothing of other nodes."""
    if node.op_type not in PRODUCTS or node.input[1] not in shapes:
        return None
    if node.op_type == "MatMul":
        rows, columns = shapes[node.input[1]]
        return rows, columns
    told = {each.name: each.i for each in node.attribute}
    return told["K"], told["N"]


def beside(node: Any, name: str) -> list[Any]:
    """Return the nodes that add an adapter's product to a product, whose output is theirs."""
    whole, own = node.output[0], f"{node.output[0]}.alone"
    node.output[0] = own
    make = onnx.helper.make_node
    return [
        make("MatMul", [node.input[0], f"lora_A.{name}"], [f"down.{name}"]),
        make("MatMul", [f"down.{name}", f"lora_B.{name}"], [f"up.{name}"]),
        make("Add", [own, f"up.{name}"], [whole]),
    ]


def linked(source: Path, target: Path) -> None:
    """Have a file in two folders; a copy of it where they are on different file systems."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


class Adapted:
    """A model with as many adapters as rows, which are run together.

    Args:
        source: The folder of the model without.
        folder: Where to write the one with.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        products = write_adapted(source, folder)
        self.model = og.Model(str(folder))
        self._adapters = og.Adapters(self.model)
        self._engine = og.Engine(self.model, max_batch_size=ROWS, max_kept_tokens=0)
        random = np.random.default_rng(0)
        for number in range(ROWS):
            made, arrays = tenonnx.AdapterFormat(), {}
            for name, rows, columns in products:
                down = random.standard_normal((rows, RANK), np.float32) / rows
                arrays[f"lora_A.{name}"] = tenonnx.OrtValue(down)
                arrays[f"lora_B.{name}"] = tenonnx.OrtValue(
                    random.standard_normal((RANK, columns), np.float32) / RANK
                )
            made.set_parameters(arrays)
            path = folder / f"{number}.onnx_adapter"
            made.export_adapter(path)
            self._adapters.load(str(path), str(number))
        self._prompts = random.integers(4, self.model.description.vocabulary, (ROWS, PROMPT))

    def step(self, *, different: bool) -> float:
        """Generate for a request in each row; return seconds per step of all rows.

        Steps before the second token are not counted: they run prompts, and copy the matrices of
        rows that had another adapter.
        """
        requests = []
        for number, prompt in enumerate(self._prompts.tolist()):
            options = og.RequestOptions()
            options.set_active_adapter(self._adapters, str(number if different else 0))
            request = self._engine.create_request(options=options)
            held = og.TurnOptions(request)
            held.set_max_generated_tokens(NEW)
            held.set_min_generated_tokens(NEW)
            request.begin_turn(prompt, held)
            requests.append(request)
        buffer = self._engine.create_event_buffer(64)
        start, steps = time.perf_counter(), 0
        while self._engine.has_pending_requests():
            for event in self._engine.run(buffer):
                if event.error is not None:
                    raise event.error
            steps += 1
            if min(len(request.tokens) for request in requests) < PROMPT + 2:
                start, steps = time.perf_counter(), 0
        return (time.perf_counter() - start) / steps
