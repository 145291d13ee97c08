"""Arguments and options that several subcommands share."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final, TypeAlias

import typer

from tenonnx.cli import completion

# The default of options that may be repeated; typer hands out a list of its own every time.
NO_VALUES: Final[list[str]] = []


class Level(enum.StrEnum):
    """The graph transforms that run: those of a level and of the levels below it."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    LAYOUT = "layout"
    ALL = "all"


def provider_option(default: str) -> Any:
    """Return ``--provider``; a sentence says which there are without it."""
    return typer.Option(
        "--provider",
        "-p",
        metavar="NAME:OPTION=VALUE,...",
        autocompletion=completion.providers,
        help=f"A provider and its options; may be repeated, in order of preference. {default}",
    )


Model: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model file.",
        show_default=False,
        autocompletion=completion.models,
    ),
]
Providers: TypeAlias = Annotated[
    list[str], provider_option("Default: every provider that is usable.")
]
Contenders: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--provider",
        "-p",
        metavar="NAME:OPTION=VALUE,...",
        autocompletion=completion.contenders,
        help="A contender; may be repeated. Default: every provider that is usable.",
    ),
]
Inputs: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input",
        "--inputs",
        "-i",
        metavar="NAME=FILE",
        help="An input: NAME=FILE.npy, NAME=FILE.npz (its array NAME, or its only one), "
        "NAME=random, or a value: NAME=3, 'NAME=[[1, 2]]'. FILE.npz alone feeds every input "
        "that it has an array for, `random` alone every input. May be repeated; later ones win.",
    ),
]
Dims: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a symbolic dimension of random inputs, or INPUT.AXIS=SIZE for one without a "
        "name; may be repeated. Default: 1.",
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Seed of random inputs.", min=0)]
Output: TypeAlias = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="OUT",
        help="Where outputs go: an .npz file, an .npy file for a single one, or a folder.",
    ),
]
LevelChoice: TypeAlias = Annotated[
    Level, typer.Option("--level", help="Which graph transforms to run.")
]
Without: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--disable-transform", metavar="NAME", help="Leave a transform out; may be repeated."
    ),
]
Roots: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--allow-root",
        metavar="FOLDER",
        help="Let external data come from a folder outside the model's own; may be repeated.",
    ),
]
Repeat: TypeAlias = Annotated[
    int | None, typer.Option(help="Measured runs of each contender.", min=1)
]
Seconds: TypeAlias = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="Time for each contender, without --repeat.", min=0.001),
]
WarmUp: TypeAlias = Annotated[
    int, typer.Option("--warmup", help="Runs that do not count, at least.", min=0)
]
Settle: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Seconds to wait at most until runs get no faster.", min=0
    ),
]
Threads: TypeAlias = Annotated[
    int, typer.Option(help="Threads inside kernels; 0: as many as the kernels choose.", min=0)
]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")
]
