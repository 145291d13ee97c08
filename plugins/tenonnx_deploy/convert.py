"""``tenonnx convert``: write a model so that it loads best, or in another format."""

from __future__ import annotations

from typing import Annotated

import typer

from tenonnx.cli.arguments import NOTHING, Json, Model, Roots
from tenonnx.cli.output import emit_json, lines, progress, size
from tenonnx.cli.state import state_of

HELP = """Writes a model with page-aligned weights, or in another format.

Page-aligned, in a file of their own, weights are used where the file is mapped, by any number of
processes at once. The target's ending chooses its format; it may be the source itself.

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
            "--data-name", metavar="NAME", help="Name of the file of weights; TARGET.data if none."
        ),
    ] = "",
    roots: Roots = NOTHING,
    as_json: Json = False,
) -> None:
    """Converts a model."""
    from tenonnx import default_registry
    from tenonnx.convert import Layout
    from tenonnx.convert import convert as write

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
