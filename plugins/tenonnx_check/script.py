"""The files that show a failure: a model, its inputs, and a few lines of Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.cli.arguments import Level
from tenonnx.cli.opening import Request, parse_provider
from tenonnx_check.outcome import Outcome
from tenonnx_check.trial import Settings

TEMPLATE = '''"""{title}"""

import numpy as np
{imports}
feeds = {feeds}
{runs}
for name, want, got in zip({outputs!r}, expected, found, strict=True):
    assert np.asarray(got).dtype == np.asarray(want).dtype, name
    np.testing.assert_allclose(got, want, {tolerance}err_msg=name)
'''

# Weights up to which they are in the model's file, which protobuf limits to 2 GiB.
MAX_INSIDE_BYTES = 2**30

ORT_LEVEL_NAMES = {
    Level.NONE: "ORT_DISABLE_ALL",
    Level.BASIC: "ORT_ENABLE_BASIC",
    Level.EXTENDED: "ORT_ENABLE_EXTENDED",
    Level.LAYOUT: "ORT_ENABLE_LAYOUT",
    Level.ALL: "ORT_ENABLE_ALL",
}


def write_model(model: ir.Model, path: str) -> None:
    """Write a model, with large weights in a file beside it."""
    tensors = [value.const_value for value in model.graph.initializers.values()]
    outside = sum(tensor.nbytes for tensor in tensors if tensor is not None) > MAX_INSIDE_BYTES
    ir.save(model, path, external_data=Path(path).name + ".data" if outside else None)


def script(
    outcome: Outcome,
    path: str,
    feeds: Mapping[str, Any],
    outputs: Sequence[str],
    how: Settings,
) -> str:
    """Return a program that raises as the reduced model does.

    Args:
        outcome: How the model fails.
        path: Its path; the inputs are beside it, in an ``.npz`` file of the same name.
        feeds: The inputs.
        outputs: The names of its outputs.
        how: How it is opened and compared.
    """
    stem = str(Path(path).with_suffix(""))
    theirs = [parse_provider(text)[0] for text in how.against.providers] == ["onnxruntime"]
    imports = ["import tenonnx", *(["import onnxruntime"] if theirs else [])]
    views = {
        name: f".view(ml_dtypes.{value.dtype})"
        for name, value in feeds.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "V"
    }
    if views:
        imports.insert(0, "import ml_dtypes")
    lines = [f"tenonnx.default_plugins().register_file({file!r})" for file in how.state.files]
    module, arguments = ("onnxruntime", []) if theirs else ("tenonnx", _options(how.against))
    lines += [
        *_run("expected", module, path, arguments),
        *_run("found", "tenonnx", path, _options(how.subject)),
    ]
    given = f"dict(np.load({stem + '.npz'!r}))"
    if views:
        given += "\n" + "\n".join(f"feeds[{n!r}] = feeds[{n!r}]{view}" for n, view in views.items())
    allowed = {"rtol": 1e-3, "atol": 1e-4, **how.tolerances}
    return TEMPLATE.format(
        title=outcome.text.splitlines()[0].replace('"""', "'''"),
        imports="\n".join(imports) + "\n",
        feeds=given,
        runs="\n".join(lines),
        outputs=list(outputs),
        tolerance="".join(f"{name}={value:g}, " for name, value in allowed.items()),
    )


def _run(name: str, module: str, path: str, options: Sequence[str]) -> list[str]:
    arguments = [repr(path), *options]
    return [
        f"{name} = {module}.InferenceSession(",
        *(f"    {argument}," for argument in arguments),
        ").run(None, feeds)",
    ]


def _options(request: Request) -> list[str]:
    """Return the arguments of a session after the model."""
    providers = [parse_provider(text) for text in request.providers]
    named = [(name, options) if options else name for name, options in providers]
    settings = []
    if request.level is not Level.ALL:
        level = f"tenonnx.GraphOptimizationLevel.{ORT_LEVEL_NAMES[request.level]}"
        settings.append(f"graph_optimization_level={level}")
    if request.without:
        settings.append(f"disabled_transforms={tuple(request.without)!r}")
    options = [f"tenonnx.SessionOptions({', '.join(settings)})"] if settings else []
    return [*options, *([f"providers={named!r}"] if named else [])]
