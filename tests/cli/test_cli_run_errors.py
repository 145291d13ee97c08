"""``tenonnx run`` when it fails: what is said, where, and with which remedy."""

from __future__ import annotations

import io
import json
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from run_files import X, save
from small import Cli, Write

from models import FLOAT, INT64, node, value
from tenonnx.cli.app import _Told
from tenonnx.cli.state import _Sentences
from tenonnx.errors import InvalidArgument


def test_an_unknown_dimension_is_told_from_those_there_are(cli: Cli, folder: Path) -> None:
    for shape, told in (
        ([None, 2], "has that dimension (there are: x.0)"),
        ([2], "no size can be chosen: leave --dim out"),
    ):
        path = save(folder, [node("Neg", "x", "y")], [value("x", FLOAT, shape)], [value("y")])
        result = cli("run", path, "-i", "random", "--dim", "batch=1")
        assert result.exit_code == 2
        assert told in result.stderr


def test_a_dimension_of_inputs_that_are_given(cli: Cli, mlp: str) -> None:
    np.save("x.npy", X)
    result = cli("run", mlp, "-i", "x=x.npy", "--dim", "batch=3")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --dim batch: sizes are for random inputs, and 'x' is given\n"
        "hint: leave --dim out, or say --input x=random\n"
    )
    both = cli("run", mlp, "-i", "x=x.npy", "-i", "random", "--dim", "batch=3", "--json")
    assert json.loads(both.stdout)["outputs"][0]["shape"] == [3, 5]


def test_an_option_after_the_subcommand_that_stands_before_it(cli: Cli, mlp: str) -> None:
    for words, moved in (
        (("--plugin", "my plugin.py"), "--plugin 'my plugin.py'"),
        (("--plugin=mine.py",), "--plugin=mine.py"),
        (("-v",), "-v"),
    ):
        result = cli("run", mlp, *words, "-i", "random")
        assert result.exit_code == 2
        assert result.stderr == (
            f"error: {words[0].partition('=')[0]} stands before the subcommand\n"
            f"hint: tenonnx {moved} run mlp.onnx -i random\n"
        )
    named = cli("run", "--", "-v")
    assert "there is no model at -v" in named.stderr


def test_remedies_are_options_of_the_command(cli: Cli, mlp: str) -> None:
    np.save("double.npy", X.astype(np.float64))
    np.save("row.npy", X[0])
    wrong = cli("run", mlp, "-i", "x=double.npy").stderr
    assert "hint: write the file again: numpy.save(FILE, ARRAY.astype('float32'))\n" in wrong
    flat = cli("run", mlp, "-i", "x=row.npy").stderr
    assert "hint: write the file again: numpy.save(FILE, ARRAY[None])\n" in flat
    proto = onnx.load(mlp)
    onnx.save(proto, "apart.onnx", save_as_external_data=True, location="w", size_threshold=0)
    Path("elsewhere").mkdir()
    shutil.move("w", "elsewhere/w")
    Path("w").symlink_to(Path("elsewhere/w"))
    Path("inside").mkdir()
    shutil.move("apart.onnx", "inside/apart.onnx")
    Path("inside/w").symlink_to(Path("elsewhere/w").resolve())
    outside = cli("run", "inside/apart.onnx", "-i", "random")
    allowed = str(Path("elsewhere").resolve())
    assert f"hint: If you trust the model, allow it: --allow-root '{allowed}'\n" in outside.stderr
    assert cli("run", "inside/apart.onnx", "-i", "random", "--allow-root", allowed).exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing is given for: x tensor(float) [batch, 16]\nhint: for example --input x=FILE"),
        (("-i", "z=random"), "the model has no input 'z' (there are: x)"),
        (("-i", "x=image.png"), "--input x=image.png: expected NAME=FILE.npy"),
        (("-i", "x"), "--input x: expected NAME=FILE.npy"),
        (("-i", "x=gone.npy"), "gone.npy cannot be read: No such file or directory"),
        (("-i", "x=text.npy"), "text.npy cannot be read: "),
        (("-i", "other.npz"), "other.npz has none of the model's inputs (x); it has a, b"),
        (("-i", "x=other.npz"), "other.npz has no array 'x'"),
        (("-i", "x=double.npy"), "input 'x': expected tensor(float) of shape ['batch', 16], got"),
        (("-i", "x=[1, 2]"), "got rank 1 (shape [2])"),
        (("-i", "random", "--dim", "batsch=2"), "that dimension; did you mean 'batch'?"),
        (("-i", "random", "--dim", "x.2=2"), "has that dimension (there are: batch)"),
        (("-i", "random", "--dim", "x.1=3"), "--dim x.1=3: the model fixes that size at 16"),
        (("-i", "random", "--dim", "batch=1e20"), "expected NAME=SIZE, such as batch=4"),
        (("-i", "random", "--dim", "batch=²"), "expected NAME=SIZE, such as batch=4"),
        (("-i", "random", "--dim", f"batch={10**20}"), "a size is at most 9,223,372,036,854"),
        (("-i", "random", "--dim", f"batch={'9' * 5000}"), "a size is at most 9,223,372,036"),
        (("-i", "random", "--dim", f"batch={2**62}"), "no memory for random input 'x' of shape"),
        (("-i", "random", "--dim", f"batch={10**11}"), "no memory for random input 'x' of shape"),
        (("-i", "random", "--dim", "batch"), "--dim batch: expected NAME=SIZE, such as batch=4"),
        (("-i", "random", "-p", "cpuu"), "unknown provider 'cpuu'; did you mean 'cpu'?"),
        (("-i", "random", "-p", "cpu:x"), "--provider cpu:x: expected cpu:option=value"),
        (("-i", "random", "-p", "cpu:cores=1"), "CPUExecutionProvider has no option 'cores'"),
        (("-i", "random", "-o", "y.npy"), "holds one array and the model has 2 outputs\nhint: "),
        (("-i", "random", "--disable-transform", "fold"), "no transform 'fold' to disable"),
    ],
)
def test_wrong_usage_says_what_is_right(
    cli: Cli, mlp: str, options: tuple[str, ...], message: str
) -> None:
    Path("text.npy").write_text("text")
    np.savez("other.npz", a=X, b=X)
    np.save("double.npy", X.astype(np.float64))
    result = cli("run", mlp, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "error" not in result.stdout
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_models_that_cannot_be_read(cli: Cli, write: Write) -> None:
    missing = cli("run", "mpl.onnx", "-i", "random")
    assert missing.exit_code == 3
    assert "error: there is no model at mpl.onnx" in missing.stderr
    damaged = cli("run", write("text.onnx", "hello world"), "-i", "random")
    assert damaged.exit_code == 3
    assert "error: text.onnx is not an ONNX model" in damaged.stderr
    folder = cli("run", ".", "-i", "random")
    assert folder.exit_code == 3
    assert folder.stderr == "error: . is a folder, not a model\nhint: The folder has text.onnx.\n"
    assert missing.stdout == damaged.stdout == folder.stdout == ""


def test_an_operator_that_nobody_runs(cli: Cli, foreign: str) -> None:
    result = cli("run", foreign, "-i", "random")
    assert result.exit_code == 4
    assert "Plus 'y' (my.domain, opset 1)" in result.stderr
    assert "hint: install a plug-in that has the operators of my.domain" in result.stderr


def test_a_run_that_fails(cli: Cli, folder: Path) -> None:
    path = save(
        folder,
        [node("Reshape", "x shape", "y", name="squeeze")],
        [value("x", FLOAT, [3]), value("shape", INT64, [1])],
        [value("y", FLOAT, None)],
    )
    result = cli("run", path, "-i", "x=random", "-i", "shape=[2]")
    assert result.exit_code == 5
    assert "error: Reshape 'squeeze' (ai.onnx, opset 21): " in result.stderr


def test_an_output_that_cannot_be_written(cli: Cli, mlp: str, write: Write) -> None:
    write("taken", "")
    result = cli("run", mlp, "-i", "random", "-o", "taken/out.npz")
    assert result.exit_code == 5
    assert "cannot be written" in result.stderr
    assert "float32" in result.stdout


def test_a_provider_that_is_not_usable(cli: Cli, adder: str, double: str) -> None:
    result = cli("--plugin", double, "run", adder, "-i", "random", "-p", "gone")
    assert result.exit_code == 4
    assert "there is no such device; buy one" in result.stderr
    result = cli("--plugin", double, "run", adder, "-i", "random", "-p", "gone", "-p", "cpu")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: running on CPUExecutionProvider; not usable: Gone")


def test_provider_options_reach_the_provider(cli: Cli, adder: str, double: str) -> None:
    options = (
        "-i",
        "x=[1]",
        "-p",
        "slow:milliseconds=70",
        "-p",
        "cpu",
        "--level",
        "none",
        "--json",
    )
    report = json.loads(cli("--plugin", double, "run", adder, *options).stdout)
    assert report["outputs"][0]["first"] == [-3.0]
    assert report["placement"] == {"SlowExecutionProvider": 1, "CPUExecutionProvider": 1}
    assert report["run_seconds"][0] >= 0.07


def test_verbose_prints_the_traceback(cli: Cli, mlp: str) -> None:
    result = cli("-v", "run", mlp, "-i", "x=gone.npy")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: gone.npy cannot be read")


def test_a_defect_shows_where_it_is(cli: Cli, write: Write) -> None:
    plugin = write(
        "faulty.py",
        """
        from tenonnx import hookimpl
        import typer

        app = typer.Typer()

        @app.command()
        def divide():
            1 / 0

        @hookimpl
        def register_commands(register):
            register(app)
        """,
    )
    result = cli("--plugin", plugin, "divide")
    assert result.exit_code == 70
    assert "ZeroDivisionError" in result.stderr
    assert "faulty.py" in result.stderr
    assert result.stderr.endswith("a defect of tenonnx or of a plug-in; please report it\n")


def test_warnings_of_the_log_are_sentences(cli: Cli, mlp: str) -> None:
    def warn(*_: object, **__: object) -> None:
        logging.getLogger("tenonnx.jit").warning("%d kernels", 3)
        raise InvalidArgument("enough")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.root, "handlers", [])
        patch.setattr("tenonnx.cli.feeds.parse_dims", warn)
        result = cli("run", mlp, "-i", "random")
        assert not logging.root.handlers, "the log ends with the command"
    assert "warning: 3 kernels\n" in result.stderr


def test_the_log_of_a_thread_that_outlives_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream is closed by then, which is no error of the thread's."""
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    for handler in (_Sentences(), _Told()):
        handler.handle(logging.makeLogRecord({"levelno": logging.WARNING, "msg": "late"}))


def test_a_link_to_nothing_is_no_model(cli: Cli, folder: Path) -> None:
    (folder / "dangling.onnx").symlink_to("nowhere.onnx")
    result = cli("run", "dangling.onnx", "-i", "random")
    assert result.exit_code == 3
    assert "is a link to nowhere.onnx, which does not exist" in result.stderr


@pytest.mark.parametrize("command", ["memory", "compare"])
def test_a_wrong_provider_is_found_before_anything_is_measured(
    cli: Cli, mlp: str, command: str
) -> None:
    result = cli(command, mlp, "--provider", "cpuu")
    assert result.exit_code == 2
    assert result.stderr == "error: unknown provider 'cpuu'; did you mean 'cpu'?\n"


def test_a_port_beyond_the_last(cli: Cli, mlp: str) -> None:
    result = cli("serve", mlp, "--port", 99999)
    assert result.exit_code == 2
    assert "expected at most 65535" in result.stderr


def test_a_plugin_that_cannot_be_written(cli: Cli, folder: Path) -> None:
    (folder / "file").touch()
    result = cli("new", "provider", "chip", "--directory", "file")
    assert result.exit_code == 2
    assert "error: cannot write file/tenonnx-chip: Not a directory" in result.stderr
