from __future__ import annotations

import json

import pytest
from small import Cli, Write

COMMANDS = """
import typer
import tenonnx

open_app = typer.Typer()

@open_app.command()
def greet(name: str = "you"):
    "Greets somebody."
    print("hello", name)

@open_app.command("run")
def steal():
    print("stolen")

@open_app.command()
def list_providers():
    print(*tenonnx.default_plugins().providers)

named = typer.Typer(name="host", help="Hosts models.")

@named.callback()
def options():
    "Serves models."

@named.command()
def start():
    print("started")

@tenonnx.hookimpl
def register_commands(register):
    register(open_app)
    register(named)
"""


def test_plugins_are_listed_with_what_they_brought(cli: Cli, double: str) -> None:
    records = json.loads(cli("--plugin", double, "plugins", "--json").stdout)
    by_name = {record["name"]: record for record in records}
    assert by_name["cpu"]["distribution"].startswith("tenonnx ")
    assert by_name["cpu"]["error"] is None
    assert "provider slow" in by_name["double"]["registered"]
    assert by_name["double"]["hooks"] == ["register_providers"]
    text = cli("--plugin", double, "plugins").stdout
    assert "provider CPUExecutionProvider, cpu" in text


def test_doing_without_a_plugin(cli: Cli, mlp: str) -> None:
    for options, present in (((), True), (("--no-plugin", "fold"), False)):
        transforms = json.loads(cli(*options, "inspect", mlp, "--json").stdout)["transforms"]
        assert ("fold-constants" in [t["name"] for t in transforms]) == present
    assert "fold" in cli("--no-plugin", "fold", "plugins").stdout
    unknown = cli("--no-plugin", "fould", "plugins")
    assert unknown.exit_code == 2
    assert unknown.stderr == "error: no plug-in 'fould'; did you mean 'fold'?\n"


def test_no_provider_left(cli: Cli, mlp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_PLUGINS", "")
    assert "cpu" in cli("providers").stdout
    bring_providers = ("cpu", "cuda", "jax", "openvino", "torch")
    none = [option for name in bring_providers for option in ("--no-plugin", name)]
    result = cli(*none, "run", mlp, "-i", "random")
    assert result.exit_code == 4
    assert "error: no provider is named, and none is left" in result.stderr
    assert "no providers; `tenonnx plugins` says" in cli(*none, "providers").stdout


def test_providers_are_listed(cli: Cli, double: str) -> None:
    found = json.loads(cli("--plugin", double, "providers", "--json").stdout)
    by_name = {provider["name"]: provider for provider in found}
    cpu, slow, gone = (by_name[f"{n}ExecutionProvider"] for n in ("CPU", "Slow", "Gone"))
    assert cpu["usable"]
    assert cpu["aliases"] == ["cpu"]
    assert cpu["kernels"] > 150
    assert (slow["kernels"], slow["options"]) == (None, {"milliseconds": 20.0})
    assert (gone["usable"], gone["problem"]) == (False, "there is no such device; buy one")
    text = cli("--plugin", double, "providers").stdout
    assert "no: there is no such device; buy one" in text
    assert "milliseconds=20.0" in text


def test_what_options_mean(cli: Cli, double: str) -> None:
    shown = cli("--plugin", double, "providers", "--options").stdout
    assert "GoneExecutionProvider\ntakes no options\n" in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line}
    assert rows["device_id"][1:5] == ["0", "Which", "GPU,", "as"]
    assert rows["prefer_nhwc"][2:] == [
        "Accepted",
        "for",
        "onnxruntime's",
        "sake,",
        "without",
        "effect.",
    ]
    assert rows["milliseconds"][1] == "20.0"
    assert rows["min_nodes"][1:5] == ["1", "Nodes", "of", "a"]
    assert "23, see --options" in cli("providers").stdout
    from tenonnx_cuda.options import CudaOptions

    described = json.loads(cli("providers", "--json").stdout)
    (cuda,) = (p for p in described if p["name"] == "CUDAExecutionProvider")
    assert cuda["meanings"].keys() == cuda["options"].keys() == vars(CudaOptions()).keys()


def test_a_check_that_fails_is_no_end(cli: Cli, write: Write) -> None:
    plugin = write(
        "rude.py",
        """
        from tenonnx import Provider, hookimpl

        class Rude(Provider):
            name = "rude"

            @classmethod
            def check(cls):
                raise OSError("no driver")

            def supports(self, node):
                return "no"

            def compile(self, segment):
                return []

        @hookimpl
        def register_providers(register):
            register(Rude)
        """,
    )
    result = cli("--plugin", plugin, "providers")
    assert result.exit_code == 0, result.output
    assert "no: its check failed: OSError: no driver" in result.stdout


def test_plugins_bring_subcommands(cli: Cli, write: Write) -> None:
    plugin = write("commands.py", COMMANDS)
    help_text = cli("--plugin", plugin, "--help").stdout
    assert "greet           Greets somebody." in help_text
    assert "host            Hosts models." in help_text
    assert cli("--plugin", plugin, "greet", "--name", "bob").stdout == "hello bob\n"
    assert cli("--plugin", plugin, "host", "start").stdout == "started\n"
    assert "greet" not in cli("--help").stdout


def test_plugins_cannot_take_a_subcommand(cli: Cli, write: Write, mlp: str) -> None:
    plugin = write("commands.py", COMMANDS)
    result = cli("--plugin", plugin, "greet")
    assert result.stderr == "warning: a plug-in's subcommand 'run' is left out: there is one\n"
    assert "stolen" not in cli("--plugin", plugin, "run", mlp, "-i", "random").stdout


def test_subcommands_that_cannot_be_made_are_left_out(cli: Cli, write: Write) -> None:
    code = "def make(): raise OSError('no terminal')\n@tenonnx.hookimpl\n"
    code += "def register_commands(register): register(make)"
    result = cli("--plugin", write("torn.py", f"import tenonnx\n{code}"), "--help")
    assert result.exit_code == 0
    said = "warning: the subcommands of plug-in 'torn' are left out: OSError: no terminal\n"
    assert result.stderr == said


def test_subcommands_of_plugins_work_with_the_chosen_plugins(
    cli: Cli, write: Write, double: str
) -> None:
    plugin = write("commands.py", COMMANDS)
    shown = cli("--plugin", double, "--plugin", plugin, "list-providers").stdout.split()
    assert shown[0] == "CPUExecutionProvider"
    assert shown[-2:] == ["SlowExecutionProvider", "GoneExecutionProvider"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("x = 1", "'bad' implements no hook"),
        (
            "import tenonnx\n@tenonnx.hookimpl\ndef register_provider(register): pass",
            "did you mean 'register_providers'?",
        ),
    ],
)
def test_plugin_files_that_do_not_work(cli: Cli, write: Write, text: str, message: str) -> None:
    result = cli("--plugin", write("bad.py", text), "plugins")
    assert result.exit_code == 6
    assert result.stderr.startswith("error: plug-in")
    assert message in result.stderr


def test_a_plugin_file_that_is_not_there(cli: Cli) -> None:
    result = cli("--plugin", "gone.py", "plugins")
    assert result.exit_code == 6
    assert result.stderr == "error: no plug-in file gone.py\nhint: give the path of a .py file\n"


def test_hooks_are_traced_on_demand(cli: Cli, double: str) -> None:
    result = cli("--plugin", double, "--trace-hooks", "plugins")
    assert "hook: register_providers of plug-in double took " in result.stderr
    assert "hook: " not in cli("--plugin", double, "plugins").stdout
