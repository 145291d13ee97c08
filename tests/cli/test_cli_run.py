from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from run_files import X, load, save
from small import Cli, mlp_outputs

from models import FLOAT, INT64, node, value
from tenonnx.cli.opening import cached_plan_files
from tenonnx.planning import lower
from tenonnx.session import InferenceSession


def test_outputs_are_the_models(cli: Cli, mlp: str) -> None:
    np.save("x.npy", X)
    result = cli("run", mlp, "--input", "x=x.npy", "--output", "out.npz", "--level", "none")
    assert result.exit_code == 0, result.output
    found, expected = load("out.npz"), mlp_outputs(X)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-5)
    np.testing.assert_array_equal(found["best"], expected["best"])
    assert "written to out.npz" in result.stdout
    assert "ran on CPUExecutionProvider (4 nodes)" in result.stdout


def test_the_summary_has_name_type_shape_and_values(cli: Cli, mlp: str) -> None:
    np.save("x.npy", X)
    lines = cli("run", mlp, "-i", "x=x.npy").stdout.splitlines()
    y, best = mlp_outputs(X).values()
    assert lines[0].split() == ["output", "dtype", "shape", "summary"]
    assert lines[1].split()[:4] == ["y", "float32", "[3,", "5]"]
    assert f"max {y.max():.6g}" in lines[1]
    assert lines[2].split(maxsplit=3) == ["best", "int64", "[3]", ", ".join(map(str, best))]


@pytest.mark.parametrize("option", ["feeds.npz", "x=feeds.npz", "x=only.npz"])
def test_inputs_from_npz(cli: Cli, mlp: str, option: str) -> None:
    np.savez("feeds.npz", x=X, unrelated=np.zeros(3))
    np.savez("only.npz", another_name=X)
    result = cli("run", mlp, "-i", option, "-o", "out.npz")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(load("out.npz")["y"], mlp_outputs(X)["y"], rtol=1e-5)


def test_values_on_the_command_line(cli: Cli, folder: Path) -> None:
    path = save(
        folder,
        [node("Reshape", "x shape", "y")],
        [value("x", FLOAT, ["n"]), value("shape", INT64, ["rank"])],
        [value("y", FLOAT, None)],
    )
    result = cli("run", path, "-i", "x=[1, 2, 3, 4]", "-i", "shape=[2, 2]", "-o", "y.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load("y.npy"), [[1, 2], [3, 4]])


def test_json_is_all_that_is_on_stdout(cli: Cli, mlp: str) -> None:
    np.save("x.npy", X)
    report = json.loads(
        cli("run", mlp, "-i", "x=x.npy", "--repeat", 3, "--level", "none", "--json").stdout
    )
    y, best = mlp_outputs(X).values()
    assert report["providers"] == ["CPUExecutionProvider"]
    assert report["placement"] == {"CPUExecutionProvider": 4}
    assert len(report["run_seconds"]) == 3
    first, second = report["outputs"]
    assert (first["name"], first["dtype"], first["shape"]) == ("y", "float32", [3, 5])
    for key in ("min", "mean", "max"):
        assert first[key] == pytest.approx(float(getattr(y, key)()), rel=1e-5)
    assert second["first"] == best.tolist()


def test_random_inputs_depend_on_the_seed_alone(cli: Cli, mlp: str) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        cli("run", mlp, "-i", "random", "--seed", seed, "--dim", "batch=7", "-o", f"{name}.npz")
    a, b, c = (load(f"{name}.npz")["y"] for name in "abc")
    assert a.shape == (7, 5)
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (TensorProto.INT64, range(8)),
        (TensorProto.UINT8, range(8)),
        (TensorProto.INT4, range(8)),
        (TensorProto.INT2, range(2)),
        (TensorProto.BOOL, range(2)),
    ],
)
def test_random_integers_are_small(cli: Cli, folder: Path, dtype: int, expected: range) -> None:
    nodes = [node("Cast", "x", "y", to=INT64)]
    path = save(folder, nodes, [value("x", dtype, ["n"])], [value("y", INT64, ["n"])], opset=25)
    result = cli("run", path, "-i", "x=random", "--dim", "n=1000", "-o", "y.npy")
    assert result.exit_code == 0, result.output
    assert set(np.load("y.npy").tolist()) == set(expected)


def test_unnamed_dimensions_are_set_by_axis(cli: Cli, folder: Path) -> None:
    inputs = [value("x", FLOAT, [None, 2, None])]
    path = save(folder, [node("Neg", "x", "y")], inputs, [value("y", FLOAT, None)])
    cli("run", path, "-i", "random", "--dim", "x.0=3", "-o", "y.npy")
    assert np.load("y.npy").shape == (3, 2, 1)


def test_outputs_in_a_folder_have_harmless_names(cli: Cli, folder: Path) -> None:
    names = ["../up", "a/b", "a:b", "file"]
    path = save(
        folder,
        [node("Neg", "x", name) for name in names],
        [value("x", FLOAT, [1])],
        [value(name, FLOAT, [1]) for name in names],
    )
    assert cli("run", path, "-i", "random", "-o", "out").exit_code == 0
    assert sorted(p.name for p in Path("out").iterdir()) == [
        "a_b.npy",
        "a_b_2.npy",
        "file.npy",
        "up.npy",
    ]
    assert cli("run", path, "-i", "random", "-o", "out.npz").exit_code == 0
    assert sorted(load("out.npz")) == sorted(names)


def test_bfloat16_survives_npz(cli: Cli, folder: Path) -> None:
    kind = TensorProto.BFLOAT16
    path = save(folder, [node("Neg", "x", "y")], [value("x", kind, [2])], [value("y", kind, [2])])
    np.savez("x.npz", x=np.array([1.5, -2], ml_dtypes.bfloat16))
    result = cli("run", path, "-i", "x.npz", "-o", "y.npz")
    assert result.exit_code == 0, result.output
    assert "bfloat16  [2]    -1.5, 2" in result.stdout
    assert load("y.npz")["y"].view(ml_dtypes.bfloat16).tolist() == [-1.5, 2]


def test_not_all_outputs_are_numbers(cli: Cli, folder: Path) -> None:
    sequence = onnx.helper.make_tensor_sequence_value_info("parts", FLOAT, None)
    path = save(
        folder,
        [
            node("SplitToSequence", "x", "parts", axis=0, keepdims=0),
            node("StringConcat", "s s", "words"),
            node("Log", "x", "logs"),
        ],
        [value("x", FLOAT, [2]), value("s", TensorProto.STRING, [1])],
        [sequence, value("words", TensorProto.STRING, [1]), value("logs", FLOAT, [2])],
    )
    feeds = ("-i", "x=[0, -1]", "-i", 's=["ab"]')
    shown = [line.split(maxsplit=3) for line in cli("run", path, *feeds).stdout.splitlines()[1:6]]
    assert shown == [
        ["parts", "sequence", "[2]"],
        ["parts[0]", "float32", "[]", "0"],
        ["parts[1]", "float32", "[]", "-1"],
        ["words", "string", "[1]", "abab"],
        ["logs", "float32", "[2]", "-inf, nan"],
    ]
    report = json.loads(cli("run", path, *feeds, "--json", "-o", "out.npz").stdout)
    assert report["outputs"][-1]["first"] == ["-inf", "nan"]
    saved = load("out.npz")
    assert sorted(saved) == ["logs", "parts.0", "parts.1", "words"]
    assert saved["words"].tolist() == ["abab"]


@pytest.mark.usefixtures("keeps_plans")
def test_a_plan_that_was_kept_is_opened(
    cli: Cli, mlp: str, double: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setenv("TENONNX_JIT", "0")
    compiled: list[object] = []
    made = lower.lower

    def counted(placed: Any) -> Any:
        compiled.append(placed)
        return made(placed)

    monkeypatch.setattr(lower, "lower", counted)
    command = ("run", mlp, "-i", "random", "--json")
    reports = [json.loads(cli(*command).stdout) for _ in range(2)]
    assert len(compiled) == 1
    for report in reports:
        del report["load_seconds"], report["run_seconds"]
    assert reports[0] == reports[1]
    assert reports[1]["placement"] == {"CPUExecutionProvider": 4}
    kept = cached_plan_files()
    for more in (("--plugin", double), ("--no-plugin", "fuse")):
        assert cli(*more, *command).exit_code == 0
    assert len(compiled) == 3
    others = {path.stem for path in cached_plan_files()} - {path.stem for path in kept}
    assert len(others) == 1, "that of the command without a plug-in"


def test_threads_of_a_run(cli: Cli, mlp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = InferenceSession.__init__

    def init(self: InferenceSession, model: Any, options: Any, *more: Any) -> None:
        asked.append(options.intra_op_num_threads)
        real(self, model, options, *more)

    monkeypatch.setattr(InferenceSession, "__init__", init)
    monkeypatch.setenv("TENONNX_PLANS", "0")
    assert cli("run", mlp, "-i", "random", "--threads", 1).exit_code == 0
    assert asked == [1]
