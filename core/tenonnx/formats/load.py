"""The reader of ONNX models: a graph whose every tensor is a weight of the registry, not copied."""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # has no stubs

from tenonnx.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    MalformedGraph,
    TenonnxError,
    WithoutGraph,
)
from tenonnx.formats.in_memory_data import NO_DATA, Supplied
from tenonnx.formats.map_types import has_maps, note_map_types, take_map_types
from tenonnx.formats.paths import DataFolders, missing
from tenonnx.formats.sparse import densify, has_sparse
from tenonnx.formats.tensors import TensorReader
from tenonnx.formats.wire import COMPILED, skim
from tenonnx.graph import label, nodes
from tenonnx.graph.protos import graphs, read_quietly
from tenonnx.process import interruption

if TYPE_CHECKING:
    from tenonnx.weights.registry import WeightRegistry

log = logging.getLogger("tenonnx.plans")

TENSOR, TENSORS = ir.AttributeType.TENSOR, ir.AttributeType.TENSORS
GRAPH, GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS
WITH_TENSORS = frozenset({TENSOR, TENSORS, GRAPH, GRAPHS})

Roots = Iterable[str | os.PathLike[str]]


def load(
    source: Any,
    registry: WeightRegistry,
    *,
    allowed_roots: Roots = (),
    supplied: Supplied = NO_DATA,
) -> ir.Model:
    """Return a model whose tensors, wherever they are in it, are ``WeightTensor``s.

    Args:
        source: A path; bytes, a bytearray, memoryview or mmap, which must not change while the
            model is in use; an ``onnx.ModelProto``, whose tensors are copied, the larger ones to
            side files; or an ``onnx_ir.Model``, which is cloned and shares its tensors' memory.
        registry: Where the weights are.
        allowed_roots: Folders that external data may lie in besides the model's own. A source
            without a path finds its external data there, and nowhere else.
        supplied: Initializers and files that the caller has in memory.

    Raises:
        NoSuchFile: There is no file at the path.
        InvalidProtobuf: The bytes are not a model.
        InvalidGraph: The model contradicts itself, or its external data is missing, too short,
            or out of bounds.
        InvalidArgument: The source is none of these, or the roots are a string.
    """
    if sys.byteorder != "little":
        raise Fail("ONNX weights are little-endian and this machine is big-endian")
    if isinstance(allowed_roots, str):  # whose letters would be folders, "/" among them
        raise InvalidArgument(
            f"allowed_roots is a string; pass a list: allowed_roots=[{allowed_roots!r}]"
        )
    roots = tuple(allowed_roots)
    if isinstance(source, ir.Model):
        try:
            model = source.clone()
        except RuntimeError as error:  # of which RecursionError is one
            raise InvalidGraph("the model cannot be cloned; its graphs nest too deeply") from error
        _convert(model, TensorReader(registry, None, roots, supplied))
        return model
    if isinstance(source, onnx.ModelProto):
        return _load_proto(source, registry, roots, supplied)
    if isinstance(source, (str, os.PathLike)):
        return _load_path(os.fspath(source), registry, roots, supplied)
    return _load_buffer(source, registry, roots, supplied)


def _load_proto(
    source: onnx.ModelProto, registry: WeightRegistry, roots: Roots, supplied: Supplied
) -> ir.Model:
    proto, inside = source, graphs(source)
    if has_sparse(source, inside) or has_maps(inside):  # reading replaces them in the message
        proto = onnx.ModelProto()
        proto.CopyFrom(source)
    folders = DataFolders.of_folders((), roots)
    return _read(proto, TensorReader(registry, folders, roots, supplied))


def _load_path(path: str, registry: WeightRegistry, roots: Roots, supplied: Supplied) -> ir.Model:
    if not os.path.isfile(path):  # noqa: PTH113 - a name that is too long is no error there
        raise missing(path)
    if not Path(path).stat().st_size:
        raise _not_a_model(path, memoryview(b""), "it has no bytes")
    mapping = registry.map(path)
    reader = TensorReader(registry, DataFolders.of_model(path, roots), roots, supplied)
    return _read_buffer(mapping.buffer, mapping, reader, path)


def _load_buffer(
    source: Any, registry: WeightRegistry, roots: Roots, supplied: Supplied
) -> ir.Model:
    try:
        storage = registry.from_buffer(source)
    except TypeError:
        raise InvalidArgument(
            "a model is a path, bytes, an onnx.ModelProto or an onnx_ir.Model, "
            f"not {type(source).__name__}"
        ) from None
    folders = DataFolders.of_folders((), roots)
    reader = TensorReader(registry, folders, roots, supplied)
    return _read_buffer(memoryview(source).cast("B"), storage, reader, "the buffer")


def _read_buffer(buffer: memoryview, storage: Any, reader: TensorReader, name: str) -> ir.Model:
    where = None
    if buffer[: len(COMPILED)] == COMPILED:
        from tenonnx.formats.compiled_file import LOCATION, header_of

        where = header_of(buffer, name).model
        log.info("%s has a plan, which is used only if the caller says that it is trusted", name)
        reader.inline[LOCATION] = storage
    try:
        skeleton = skim(buffer, where=where)
        proto = onnx.ModelProto.FromString(skeleton.data)
    except (InvalidProtobuf, DecodeError) as error:
        # protobuf says only that it failed. A second, slower look finds the byte.
        exact = _diagnosis(buffer, error)
        hint = exact.hint if isinstance(exact, InvalidProtobuf) else None
        raise _not_a_model(name, buffer, str(exact.args[0]), hint) from error
    if not proto.HasField("graph"):
        mend = "If it is TensorFlow's, convert it with tf2onnx."
        raise _not_a_model(name, buffer, "it has no graph", mend, WithoutGraph)
    reader.inline[skeleton.location] = storage
    model = _read(proto, reader)
    if skeleton.lists:
        from tenonnx.formats.list_attributes import put_back

        put_back(model, skeleton.lists)
    return model


def _read(proto: onnx.ModelProto, reader: TensorReader) -> ir.Model:
    """Return the model of a proto, which gets changed if it has sparse tensors or maps."""
    _refuse_incomplete(proto)
    try:
        inside = graphs(proto)
        densify(proto, inside, reader)
        maps = take_map_types(inside)
        model = read_quietly(ir.serde.deserialize_model, proto)
        _restore_input_types(model.graph, proto.graph, inner=len(inside) > 1)
    except TenonnxError:
        raise
    except Exception as error:  # what onnx_ir raises depends on what is malformed
        from tenonnx.process.exceptions import message_of

        why = message_of(_root_cause(error)) or "a field of it says what it cannot mean"
        raise MalformedGraph(f"the model is not well-formed: {why}") from error
    _convert(model, reader)
    note_map_types(model, maps)
    return model


def _refuse_incomplete(proto: onnx.ModelProto) -> None:
    if not proto.ir_version:
        raise MalformedGraph("the model lacks its ir_version, which every model has")
    for info in proto.graph.input:
        if not info.HasField("type"):
            raise MalformedGraph(f"the graph input '{info.name}' has no type")
    ends = (value.name for value in (*proto.graph.input, *proto.graph.output))
    functions = ((each.domain, each.name, each.overload) for each in proto.functions)
    for name in itertools.chain(ends, *functions):
        # protobuf leaves what is no UTF-8 as it is.
        if isinstance(name, bytes):
            raise MalformedGraph(f"the name {name!r} is not UTF-8, as all names are")


def _restore_input_types(graph: ir.Graph, proto: onnx.GraphProto, *, inner: bool) -> None:
    """Give inputs that are outputs, too, the types that they have as inputs.

    Args:
        graph: A graph.
        proto: The same as protobuf has it.
        inner: Whether there are graphs in nodes.
    """
    # onnx_ir reads outputs after inputs into the same value, so an output's type would stay.
    for value, info in zip(graph.inputs, proto.input, strict=True):
        if value.is_graph_output():
            ir.serde.deserialize_value_info_proto(info, value)
    for node, written in zip(graph, proto.node, strict=True) if inner else ():
        for attribute in written.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH and not attribute.ref_attr_name:
                body = node.attributes[attribute.name].as_graph()
                _restore_input_types(body, attribute.g, inner=inner)


def _convert(model: ir.Model, reader: TensorReader) -> None:
    """Replace every tensor of a model by a tensor over the registry."""
    _convert_initializers(model.graph, reader)
    for node in nodes(model.graph):
        interruption.check()
        if node.attributes:
            _refuse_references(node)
            _convert_attributes(node, reader)
    for function in model.functions.values():
        _convert_attributes(function, reader)
        for node in nodes(function):
            _convert_attributes(node, reader)


def _refuse_references(node: ir.Node) -> None:
    for name, attribute in node.attributes.data.items():
        if attribute.is_ref():
            raise InvalidGraph(
                f"{label(node)}: attribute {name} refers to {attribute.ref_attr_name}, an "
                "attribute of a function, outside any function"
            )


def _convert_initializers(graph: ir.Graph, reader: TensorReader) -> None:
    given = {n: v.const_value for n, v in graph.initializers.items() if v.const_value is not None}
    for name, tensor in zip(given, reader.read_all(given), strict=True):
        graph.initializers[name].const_value = tensor


def _convert_attributes(owner: ir.Node | ir.Function, reader: TensorReader) -> None:
    for name, attribute in tuple(owner.attributes.data.items()):
        if attribute.type not in WITH_TENSORS or attribute.value is None:
            continue
        value = attribute.value
        label = f"{name} of {owner.name or getattr(owner, 'op_type', 'a function')}"
        if attribute.type == TENSOR:
            tensor = reader.read(value, label)
            owner.attributes[name] = ir.AttrTensor(name, tensor, attribute.doc_string)
        elif attribute.type == TENSORS:
            tensors = [reader.read(tensor, label) for tensor in value]
            owner.attributes[name] = ir.AttrTensors(name, tensors, attribute.doc_string)
        else:
            for graph in value if attribute.type == GRAPHS else [value]:
                _convert_initializers(graph, reader)


def _diagnosis(buffer: memoryview, error: Exception) -> Exception:
    """Return the most exact account there is of why a buffer is not a model."""
    if isinstance(error, DecodeError):
        try:
            skim(buffer, threshold=0)
        except InvalidProtobuf as exact:
            return exact
    return error


def _not_a_model(
    name: str,
    buffer: memoryview,
    reason: str,
    hint: str | None = None,
    kind: type[InvalidProtobuf] = InvalidProtobuf,
) -> InvalidProtobuf:
    kind = kind if buffer.nbytes else WithoutGraph
    from tenonnx.formats.sniff import looks_like

    if like := looks_like(buffer):
        return kind(f"{name} is not an ONNX model but {like.what}", hint=like.mend)
    hint = hint or "Was it changed on its way? Compare its size with the original's."
    return kind(f"{name} is not an ONNX model: {reason}", hint=hint)


def _root_cause(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
