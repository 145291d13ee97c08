"""``tenonnx new``: writes the distribution of a plug-in, complete and tested."""

from __future__ import annotations

import enum
import importlib.util
import keyword
import os
import re
import shlex
import sysconfig
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from tenonnx import InvalidArgument
from tenonnx.cli.output import lines
from tenonnx.cli.state import State, state_of

HELP = """Writes a plug-in as a distribution of its own, with its tests.

The distribution is called tenonnx-NAME, its module tenonnx_NAME. As written, it passes its tests,
ruff and mypy; change it from there.

\b
Examples:
  tenonnx new provider chip
  tenonnx new compiler npu
  tenonnx new transform drop-casts --directory ~/plugins
"""


class Kind(enum.StrEnum):
    """The kinds of plug-ins."""

    PROVIDER = "provider"
    COMPILER = "compiler"
    TRANSFORM = "transform"
    OPERATOR = "operator"
    KERNELS = "kernels"
    FORMAT = "format"
    OBSERVER = "observer"
    COMMAND = "command"


# A folder of templates for each kind, and one for all kinds. Paths have words in capitals for the
# names of the plug-in, and for the dot of hidden files, which packaging tools leave out.
TEMPLATES = Path(__file__).parent / "templates"

# What stands in pyproject.toml of distributions without kernels, and with some.
PLAIN = {
    "requires": '"setuptools>=77"',
    "backend": "setuptools.build_meta",
    "announced": "",
    "unchecked": "",
}
COMPILED = {
    "requires": '"setuptools>=77", "tenonnx"',
    "backend": "tenonnx_cpu.build_backend",
    "announced": """
# The build backend compiles the package's kernels; this module calls them for this domain.
[project.entry-points."tenonnx.kernels"]
"com.example.$snake" = "$module.calls"
""",
    "unchecked": """
[[tool.mypy.overrides]]
module = ["numba.*", "llvmlite.*"]
follow_imports = "skip"
ignore_missing_imports = true

[[tool.mypy.overrides]]
module = ["tenonnx_cpu.*"]
follow_imports = "silent"
""",
}

MAX_NAME = 24
PLUGIN_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new(
    context: typer.Context,
    kind: Annotated[
        Kind,
        typer.Argument(
            metavar="KIND",
            help="What the plug-in brings: provider (over an array library), compiler (a provider "
            "with a device of its own), transform, operator, kernels (an operator that numba "
            "compiles), format, observer or command.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.", show_default=False)],
    directory: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where its folder is made.")
    ] = Path(),
) -> None:
    """Write the files and say what to do next."""
    check_name(state_of(context), name)
    folder = write(kind.value, name, directory)
    lines(
        f"wrote {folder}",
        "",
        f"  cd {folder}",
        '  pip install -e . --group test   # needs pip 25.1: pip install -U "pip>=25.1"',
        f"  pytest && ruff check && {checking()}",
    )


def checking() -> str:
    """Return the command that checks types.

    mypy looks into ``site-packages`` alone, and follows no editable install of tenonnx there.
    """
    specs = map(importlib.util.find_spec, ("tenonnx", "tenonnx_array"))
    roots = {str(Path(spec.origin).parents[1]): None for spec in specs if spec and spec.origin}
    installed = sysconfig.get_paths()
    elsewhere = roots.keys() - {installed["purelib"], installed["platlib"]}
    if not elsewhere:
        return "mypy"
    return f"MYPYPATH={shlex.quote(os.pathsep.join(sorted(elsewhere)))} mypy"


def check_name(state: State, name: str) -> None:
    """Refuse a name that is none, or that somebody has.

    Raises:
        InvalidArgument: What is wrong with it.
    """
    if not PLUGIN_NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > MAX_NAME:
        small = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
        raise InvalidArgument(
            f"{name!r} is no name for a plug-in: expected up to {MAX_NAME} small letters, digits "
            "and hyphens, a letter first, and no keyword of Python",
            hint=f"for example {small[:MAX_NAME].strip('-') or 'my'}-plugin"
            if keyword.iskeyword(small)
            else f"for example {small[:MAX_NAME].strip('-') or 'my-plugin'}",
        )
    module = f"tenonnx_{name.replace('-', '_')}"
    known = (r for r in state.plugins.records if r.name.replace("_", "-") == name)
    taken = [f"the plug-in {record.name!r} of {record.distribution}" for record in known]
    taken += [f"the module {module}"] if importlib.util.find_spec(module) else []
    if taken:
        raise InvalidArgument(f"{name!r} is taken by {taken[0]}", hint="choose another name")


def write(kind: str, name: str, directory: Path) -> Path:
    """Write the distribution; return its folder.

    Raises:
        InvalidArgument: The folder is there already, or cannot be written.
    """
    folder = directory / f"tenonnx-{name}"
    if folder.exists():
        raise InvalidArgument(f"{folder} is there already", hint="choose another name or folder")
    words = {
        "name": name,
        "kind": kind,
        "module": f"tenonnx_{name.replace('-', '_')}",
        "snake": name.replace("-", "_"),
        "Camel": "".join(part.capitalize() for part in name.split("-")),
        **(COMPILED if kind == Kind.KERNELS else PLAIN),
    }
    words["announced"] = Template(words["announced"]).substitute(words)
    named = {"MODULE": words["module"], "SNAKE": words["snake"], "DOT": "."}
    try:
        for root in (TEMPLATES / "common", TEMPLATES / kind):
            for template in root.rglob("*.template"):
                path = template.relative_to(root).as_posix().removesuffix(".template")
                target = folder / re.sub("|".join(named), lambda word: named[word[0]], path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(Template(template.read_text("utf-8")).substitute(words), "utf-8")
    except OSError as error:
        why = f"cannot write {folder}: {error.strerror}"
        raise InvalidArgument(why, hint="choose another folder: --directory FOLDER") from error
    return folder
