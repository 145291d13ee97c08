"""NLLB's embedding: looked up in one branch of an If, turned and multiplied by in the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from bench.builder import BOOL, FLOAT, INT64, Builder, Specs
from bench.weight_sharing.case import Bound, Case, Weights, row, save

WORDS, WIDTH = 256_206, 1024
BOUNDS = (Bound("ran_mib", 16), Bound("run_s", 1, relative=True))


def tied(folder: Path, scale: float) -> Case:
    """One matrix in both branches; a scale changes its number of rows."""
    words = max(64, round(WORDS * scale))
    path = folder / "tied.onnx"
    result = [helper.make_tensor_value_info("out", FLOAT, None)]
    up, project = Builder(), Builder()
    up("Gather", "table", "ids", out="out")
    project("MatMul", "x", project("Transpose", "table", perm=[1, 0]), out="out")
    branches = {
        "then_branch": helper.make_graph(up.nodes, "look_up", [], result),
        "else_branch": helper.make_graph(project.nodes, "project", [], result),
    }
    inputs: Specs = {
        "embed": (BOOL, []),
        "ids": (INT64, ["length"]),
        "x": (FLOAT, ["length", WIDTH]),
    }
    with Weights(path) as weights:
        weights.normal("table", words, WIDTH, scale=WIDTH**-0.5)
        graph = helper.make_graph(
            [helper.make_node("If", ["embed"], ["y"], **branches)],
            "tied",
            [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            weights.tensors,
        )
    save(path, graph, 17)
    feed = {"ids": np.array([7, 0, words - 1]), **row(WIDTH)}
    feeds = [{"embed": np.array(branch), **feed} for branch in (True, False)]
    return Case("tied-if", path, feeds, bounds=BOUNDS)
