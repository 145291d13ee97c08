"""``tenonnx quantize`` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from small import Cli

from models import FLOAT, model, node, value

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture
def images(folder: Path) -> str:
    data = np.load(DIGITS / "heldout.npz")
    np.savez(folder / "images.npz", image=data["images"][:64, None].astype(np.float32) / 16)
    return "images.npz"


def test_a_model_in_four_bits(cli: Cli, folder: Path) -> None:
    done = cli("quantize", DIGITS / "digits.onnx", "int4.onnx", "--inline")
    assert done.exit_code == 0, done.output
    assert "wrote int4.onnx" in done.stdout
    assert "1 weight quantized: tensors take 0.10 MiB instead of 0.13 MiB" in done.stdout
    operators = {n.op_type for n in onnx.load(folder / "int4.onnx").graph.node}
    assert "DequantizeLinear" in operators


def test_calibration_and_its_report(cli: Cli, images: str) -> None:
    command = ["quantize", DIGITS / "digits.onnx", "int8.onnx", "--mode", "static"]
    done = cli(*command, "--data", images, "--batch", 16, "--samples", 3, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found["written"]) == ["int8.onnx.data", "int8.onnx"]
    assert found["quantized"] == 6
    assert found["accuracy"]["logits"]["snr"] > 35
    assert "finding ranges" in done.stderr
    others = ("--uint8", "--method", "entropy", "--exclude", "conv1", "--force")
    done = cli(*command, "--data", images, *others)
    assert "5 nodes quantized" in done.stdout
    assert "logits: max error" in done.stdout


def test_forms_belong_to_modes(cli: Cli, folder: Path) -> None:
    model = DIGITS / "digits.onnx"
    done = cli("quantize", model, "out.onnx", "--format", "matmulnbits", "--asymmetric")
    assert done.exit_code == 0, done.output
    domains = {n.op_type for n in onnx.load(folder / "out.onnx").graph.node if n.domain}
    assert domains == {"MatMulNBits"}
    done = cli("quantize", model, "out.onnx", "--mode", "dynamic", "--operator", "Conv", "--force")
    assert "3 nodes quantized" in done.stdout
    done = cli("quantize", model, "out.onnx", "--mode", "static", "--format", "integer")
    assert done.exit_code == 2
    assert "--mode static has no form integer" in done.stderr
    assert "hint: it has: qdq" in done.stderr


@pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < 28, reason="older converters of versions lose types of maps"
)
def test_a_classifier_that_returns_maps(cli: Cli, folder: Path) -> None:
    entry = onnx.helper.make_map_type_proto(
        onnx.TensorProto.INT64, onnx.helper.make_tensor_type_proto(FLOAT, [])
    )
    output = onnx.helper.make_value_info("y", onnx.helper.make_sequence_type_proto(entry))
    zipped = node("ZipMap", "p", "y", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    weights = {"w": np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)}
    for name, product, weight in (
        ("with", node("MatMul", "x w", "p"), weights),
        ("without", node("Softmax", "x", "p"), {}),
    ):
        inputs = [value("x", FLOAT, [None, 64 if weight else 3])]
        proto = model(
            [product, zipped], inputs, [output], weight, opset=17, domains={"ai.onnx.ml": 1}
        )
        onnx.save(proto, folder / f"{name}.onnx")
    done = cli("quantize", "with.onnx", "out.onnx")
    assert done.exit_code == 0, done.output
    (found,) = onnx.load(folder / "out.onnx").graph.output
    assert found.type == output.type
    assert cli("run", "out.onnx", "-i", "random").exit_code == 0
    done = cli("quantize", "without.onnx", "out.onnx", "--force")
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-2].startswith("error: the model has no weight to quantize")


def test_mistakes_are_explained(cli: Cli, images: str) -> None:
    model = DIGITS / "digits.onnx"
    for options, message in (
        (["--mode", "static"], "there is none"),
        (["--operator", "Softmax"], "Softmax cannot be quantized"),
        (["--exclude", "head"], "no node is called 'head'"),
        (["--bits", "5"], "4 or 8 bits, not of 5"),
        (["--data", "nothing.npz"], "there is no calibration data"),
    ):
        done = cli("quantize", model, "out.onnx", *options)
        assert done.exit_code == 2, done.output
        assert message in done.stderr
    assert images == "images.npz"
