"""Arguments and options that several subcommands share."""

from __future__ import annotations

import enum
from typing import Annotated, Final, TypeAlias

import typer

NOTHING: Final[list[str]] = []
"""The default of options that may be repeated; typer hands out a list of its own every time."""


class Level(enum.StrEnum):
    """Which graph transforms run: those of a level and of the levels below it."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    LAYOUT = "layout"
    ALL = "all"


Model: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model file.", show_default=False)
]
Providers: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--provider",
        "-p",
        metavar="NAME:OPTION=VALUE,...",
        help="A provider, with options if need be; may be repeated, in order of preference. "
        "All that are usable if there is none.",
    ),
]
Contenders: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--provider",
        "-p",
        metavar="NAME:OPTION=VALUE,...",
        help="A contender; may be repeated. All that are usable if there is none.",
    ),
]
Inputs: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FILE",
        help="An input: NAME=FILE.npy, NAME=FILE.npz (its array NAME, or its only one), "
        "NAME=random, or a value: NAME=3, 'NAME=[[1, 2]]'. FILE.npz alone feeds every input "
        "it has, random alone all of them. May be repeated; later ones win.",
    ),
]
Dims: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a symbolic dimension of random inputs, or INPUT.AXIS=SIZE; others are 1.",
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
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")
]
