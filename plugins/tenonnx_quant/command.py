"""``tenonnx quantize``: a model's weights, and its activations, as integers."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from tenonnx import InvalidArgument
from tenonnx.cli.arguments import NO_VALUES, Force, Json, Model, Roots
from tenonnx.cli.output import check_targets, emit_json, lines, progress, size
from tenonnx.formats.convert import Layout
from tenonnx_quant import quantize as api
from tenonnx_quant.dynamic import DynamicScheme
from tenonnx_quant.selection import Selection
from tenonnx_quant.static import StaticScheme
from tenonnx_quant.weight_only import WeightScheme

HELP = """Quantizes a model and writes it as standard ONNX.

\b
  weights   matrices in 4 or 8 bits, activations stay floats; for language models
  dynamic   products in int8, the range of activations is found in every run; for transformers
  static    weights and activations in int8, ranges from data; for convolutional networks

With --data, the error of every output against the original model is shown at the end.

\b
Examples:
  tenonnx quantize model.onnx int4.onnx
  tenonnx quantize model.onnx int4.onnx --format matmulnbits --asymmetric
  tenonnx quantize model.onnx int8.onnx --mode dynamic --exclude '/lm_head/*'
  tenonnx quantize model.onnx int8.onnx --mode static --data images.npz --batch 32
"""


class Mode(enum.StrEnum):
    """The parts that are quantized."""

    WEIGHTS = "weights"
    DYNAMIC = "dynamic"
    STATIC = "static"


class Method(enum.StrEnum):
    """The method that finds ranges."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"


class Form(enum.StrEnum):
    """The operators of the quantized model."""

    QDQ = "qdq"
    INTEGER = "integer"
    MATMULNBITS = "matmulnbits"


# The first form of a mode is its default.
FORMS_OF_MODE = {
    Mode.WEIGHTS: (Form.QDQ, Form.MATMULNBITS),
    Mode.DYNAMIC: (Form.INTEGER, Form.QDQ),
    Mode.STATIC: (Form.QDQ,),
}

Data = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Calibration data: an .npz file with an array per input, an .npy file, a folder of "
        "such files, or a .py file whose function feeds() yields dicts of arrays.",
    ),
]
Excluded = Annotated[
    list[str],
    typer.Option(metavar="NAME", help="Leave out nodes of a name, such as '/head/*'; repeatable."),
]
Operators = Annotated[
    list[str],
    typer.Option("--operator", metavar="TYPE", help="Quantize these operators only; repeatable."),
]


def quantize(
    model: Model,
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="The .onnx file to write.")],
    mode: Annotated[Mode, typer.Option(help="What to quantize.")] = Mode.WEIGHTS,
    data: Data = "",
    batch: Annotated[
        int, typer.Option(min=0, metavar="ROWS", help="Cut the data into batches; 0: as it is.")
    ] = 0,
    samples: Annotated[
        int, typer.Option(min=0, metavar="N", help="Use the first N batches of data; 0: all.")
    ] = 0,
    method: Annotated[
        Method, typer.Option(help="static: how the ranges of activations are found.")
    ] = Method.MINMAX,
    percentile: Annotated[
        float, typer.Option(help="static: the share that --method percentile keeps.")
    ] = 99.999,
    unsigned: Annotated[
        bool, typer.Option("--uint8", help="static: activations in uint8 instead of int8.")
    ] = False,
    bits: Annotated[int, typer.Option(help="weights: 4 or 8.")] = 4,
    block_size: Annotated[
        int, typer.Option(help="weights: numbers that share a scale; 0: a whole column.")
    ] = 32,
    symmetric: Annotated[
        bool | None,
        typer.Option(
            "--symmetric/--asymmetric",
            show_default=False,
            help="Whether zero points are left out: of weights (default: yes), of activations of "
            "a static model (default: no).",
        ),
    ] = None,
    per_channel: Annotated[
        bool,
        typer.Option("--per-channel/--per-tensor", help="static, dynamic: scales of weights."),
    ] = True,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            show_default=False,
            help="weights: qdq, standard ONNX, or matmulnbits, onnxruntime's operators; "
            "dynamic: integer or qdq.",
        ),
    ] = None,
    operators: Operators = NO_VALUES,
    exclude: Excluded = NO_VALUES,
    inline: Annotated[
        bool, typer.Option("--inline", help="Keep the weights inside the .onnx file.")
    ] = False,
    force: Force = False,
    roots: Roots = NO_VALUES,
    as_json: Json = False,
) -> None:
    """Quantize a model."""
    form = form or FORMS_OF_MODE[mode][0]
    if form not in FORMS_OF_MODE[mode]:
        raise InvalidArgument(
            f"--mode {mode} has no form {form}", hint=f"it has: {', '.join(FORMS_OF_MODE[mode])}"
        )
    check_targets(output, "" if inline else f"{output}.data", force=force)
    chosen: dict[str, Any] = {} if mode is Mode.STATIC else {"form": form.value}
    if operators or exclude:
        default = {Mode.WEIGHTS: WeightScheme, Mode.DYNAMIC: DynamicScheme}.get(mode, StaticScheme)
        names = tuple(operators) or default().selection.operators
        chosen["selection"] = Selection(names, tuple(exclude))
    job: dict[str, Any] = {
        "data": data or None, "batch": batch, "samples": samples,
        "layout": Layout(inline), "allowed_roots": tuple(roots),
    }  # fmt: skip
    with progress(1.0) as tell:
        job["progress"] = tell
        if mode is Mode.WEIGHTS:
            weights = WeightScheme(bits, block_size, symmetric is not False, **chosen)
            report = api.quantize_weights(model, output, weights, **job)
        elif mode is Mode.DYNAMIC:
            dynamic = DynamicScheme(per_channel, **chosen)
            report = api.quantize_dynamic(model, output, dynamic, **job)
        else:
            static = StaticScheme(
                method.value, percentile, per_channel, bool(symmetric), not unsigned, **chosen
            )
            report = api.quantize_static(model, output, static, **job)
    tell_of(report, as_json)


def tell_of(report: api.Report, as_json: bool) -> None:
    """Print what was done."""
    sizes = {str(path): path.stat().st_size for path in report.written}
    if as_json:
        accuracy = {
            item.output: {"max": item.largest, "mean": item.mean, "snr": item.snr}
            for item in report.accuracy
        }
        emit_json({"written": sizes, "quantized": report.quantized, "accuracy": accuracy})
    else:
        lines(*(f"wrote {name}, {size(nbytes)}" for name, nbytes in sizes.items()))
        lines(*str(report).splitlines())
