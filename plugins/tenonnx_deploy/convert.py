"""``tenonnx convert``: rewrites a model to load fast, or in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenonnx.cli.arguments import NO_VALUES, Force, Json, Model, Roots
from tenonnx.cli.output import check_targets, emit_json, lines, progress, size
from tenonnx.cli.state import state_of

HELP = """Writes a model with page-aligned weights, or in another format.

The weights go to a file of their own, at page boundaries. Any number of processes map that file
and use the weights in place, without a copy. The target's ending chooses the format. An existing
file, such as the source itself, is replaced with --force only.

\b
Examples:
  tenonnx convert model.onnx mapped.onnx
  tenonnx convert model.ort model.onnx
  tenonnx convert model.onnx model.ort
  tenonnx convert model.onnx single.onnx --inline
"""


def convert(
    context: typer.Context,
    model: Model,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The file to write.")],
    inline: Annotated[
        bool, typer.Option("--inline", help="Keep the weights inside the .onnx file.")
    ] = False,
    threshold: Annotated[
        int,
        typer.Option(
            metavar="BYTES", min=0, help="Smaller tensors stay inside the .onnx file in any case."
        ),
    ] = 1024,
    data_name: Annotated[
        str,
        typer.Option(
            "--data-name", metavar="NAME", help="The file of weights; default: TARGET.data."
        ),
    ] = "",
    force: Force = False,
    roots: Roots = NO_VALUES,
    as_json: Json = False,
) -> None:
    """Convert a model."""
    from tenonnx import default_registry
    from tenonnx.formats.convert import Layout
    from tenonnx.formats.convert import convert as write

    check_targets(target, force=force)
    if target.endswith(".onnx") and not inline:
        check_targets(Path(target).with_name(data_name or f"{Path(target).name}.data"), force=force)
    with progress(1.0) as tell:
        written = write(
            model,
            target,
            default_registry(),
            formats=tuple(state_of(context).plugins.formats.values()),
            layout=Layout(inline, threshold, data_name),
            allowed_roots=roots,
            progress=tell,
        )
    sizes = {str(path): path.stat().st_size for path in written}
    if as_json:
        emit_json({"written": sizes})
    else:
        lines(*(f"wrote {name}, {size(nbytes)}" for name, nbytes in sizes.items()))
