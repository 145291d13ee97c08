"""Models whose compiled segments are inside, as onnxruntime's node ``EPContext``."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from tenonnx.errors import Fail, NotSupported
from tenonnx.formats.convert import Layout, save_onnx
from tenonnx.interface import config
from tenonnx.planning.placement import PlacedGraph, PlacedSegment
from tenonnx.segments import CONTEXT, SegmentProvider, is_context

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions


def save_contexts(
    model: ir.Model, placed: PlacedGraph, options: SessionOptions, source: str | None
) -> Path:
    """Write a model whose segments are compiled, beside it or where the options say.

    Args:
        model: The model as it runs.
        placed: Its graph.
        options: The session's.
        source: The model's path, if it has one.

    Raises:
        NotSupported: No provider of the session compiles segments to bytes.
        Fail: The file is there already, or there is no place for it.
    """
    path = _target(options, source)
    whole = model.clone()  # the session goes on with the model itself
    copies = dict(zip(model.graph, whole.graph, strict=True))
    found = [
        (item.provider, item.segment)
        for item in placed.items
        if isinstance(item, PlacedSegment)
        and isinstance(item.provider, SegmentProvider)
        and not is_context(item.segment.nodes[0])
    ]
    if not found:
        names = ", ".join({name: None for _, name, _ in placed.places})
        raise NotSupported(f"nothing is compiled to bytes: the nodes run on {names}")
    for number, (provider, segment) in enumerate(found):
        nodes = [copies[node] for node in segment.nodes]
        values = {
            ours: theirs
            for node, copy in zip(segment.nodes, nodes, strict=True)
            for ours, theirs in zip(
                (*node.inputs, *node.outputs), (*copy.inputs, *copy.outputs), strict=True
            )
            if ours is not None and theirs is not None
        }
        outputs = [values[value] for value in segment.outputs]
        context = ir.Node(
            *CONTEXT,
            [values[value] for value in segment.inputs],
            _attributes(provider, bytes(provider.kept(segment).array.data), number),
            outputs=[ir.Value(name=v.name, type=v.type, shape=v.shape) for v in outputs],
            version=1,
        )
        ir.convenience.replace_nodes_and_values(
            whole.graph, nodes[-1], nodes, [context], outputs, context.outputs
        )
    whole.graph.opset_imports.setdefault(CONTEXT[0], 1)
    # A context is where its last node was; readers of its other outputs may be before that.
    whole.graph.sort()
    save_onnx(whole, path, Layout(inline=True), lambda *_: None)
    return path


def _attributes(provider: SegmentProvider, content: bytes, number: int) -> list[ir.Attr]:
    return [
        ir.AttrInt64("main_context", 1),
        ir.AttrInt64("embed_mode", 1),
        ir.AttrString("ep_cache_context", base64.b64encode(content).decode()),
        ir.AttrString("ep_sdk_version", repr(provider.depends_on())),
        ir.AttrString("partition_name", f"{provider.name}_{number}"),
        ir.AttrString("source", provider.name),
    ]


def _target(options: SessionOptions, source: str | None) -> Path:
    given = options.entry(config.CONTEXT_FILE)
    if not given and source is None:
        raise Fail(
            "a model from memory has no place for its compiled segments",
            hint=f"add_session_config_entry({config.CONTEXT_FILE!r}, path)",
        )
    path = Path(given) if given else Path(source or "").with_suffix("")
    path = path if given else path.with_name(f"{path.name}_ctx.onnx")
    if path.exists():
        raise Fail(f"{path} is there already", hint="delete it, or name another file")
    return path
