"""Writing models so that they load best: weights at page boundaries of a file of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from tenonnx.errors import Fail, InvalidArgument
from tenonnx.formats import Format, load_model
from tenonnx.formats.map_types import restore_map_types
from tenonnx.weights.registry import WeightRegistry

PAGE = 4096
# The size limit of a protobuf message.
MAX_INLINE_BYTES = 2**31 - 1

# Takes what is being done and the share that is done, from 0 to 1.
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Layout:
    """The layout in which a model's weights are written.

    Attributes:
        inline: Keep them inside the ``.onnx`` file.
        threshold: Tensors of fewer bytes stay inside the ``.onnx`` file in any case.
        data_name: Name of the file of weights; the model's with ``.data`` added if empty.
        alignment: The alignment of weights in that file: a page, as ONNX advises.
    """

    inline: bool = False
    threshold: int = 1024
    data_name: str = ""
    alignment: int = PAGE


def convert(
    source: Any,
    target: str | os.PathLike[str],
    registry: WeightRegistry,
    *,
    formats: Sequence[Format] = (),
    layout: Layout | None = None,
    allowed_roots: Iterable[str] = (),
    progress: Progress | None = None,
) -> list[Path]:
    """Load a model in any format and write it in the one that the target's ending names.

    The target appears whole or not at all, and may be the source: weights are read from the old
    file, which stays until nobody maps it.

    Args:
        source: A model as for ``InferenceSession``.
        target: Where to write; ``.onnx``, or an ending of a format that can save.
        registry: Where the weights are mapped meanwhile.
        formats: Formats besides ONNX.
        layout: How to write weights.
        allowed_roots: Folders outside the model's own that external data may come from.
        progress: Hears of every weight written.

    Returns:
        The files written.

    Raises:
        InvalidArgument: No format of that ending can be written.
        Fail: The files cannot be written; whatever was there before is still there.
    """
    # Before loading, which may take minutes: whether the ending can be written at all.
    saver(Path(target), formats)
    model = load_model(source, registry, formats, allowed_roots)
    return write(model, target, formats=formats, layout=layout, progress=progress)


def write(
    model: ir.Model,
    target: str | os.PathLike[str],
    *,
    formats: Sequence[Format] = (),
    layout: Layout | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Write a model in the format that the target's ending names; whole or not at all.

    Tensors are asked for their bytes one after the other, so those that are computed when they
    are asked need never exist together.

    Args:
        model: Any model; if the target is the file that its weights are mapped from, they stay.
        target: As in ``convert``.
        formats: Formats besides ONNX.
        layout: How to write weights.
        progress: Hears of every weight written.

    Returns:
        The files written, the model itself last.

    Raises:
        InvalidArgument: No format of that ending can be written.
        Fail: The files cannot be written; whatever was there before is still there.
    """
    target = Path(target)
    save = saver(target, formats, layout or Layout(), progress or (lambda *_: None))
    try:
        # In the target's folder, since renaming is atomic within one file system only.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            save(model, Path(folder) / target.name)
            return _move_into_place(Path(folder), target)
    except OSError as error:
        raise Fail(f"cannot write {target}: {error.strerror or error}") from error


def saver(
    target: Path,
    formats: Sequence[Format],
    layout: Layout = Layout(),
    progress: Progress = lambda *_: None,
) -> Callable[[ir.Model, Path], None]:
    """Return what writes a model to a path in the format of the target's ending.

    Raises:
        InvalidArgument: No format of that ending can be written.
    """
    if target.suffix == ".onnx":
        return lambda model, path: save_onnx(model, path, layout, progress)
    for candidate in formats:
        if target.suffix in candidate.suffixes and candidate.save is not None:
            return candidate.save
    endings = [".onnx", *(s for f in formats if f.save for s in f.suffixes)]
    raise InvalidArgument(
        f"cannot write {target.name}: no format of that ending can be saved "
        f"(there are: {', '.join(endings)})"
    )


def save_onnx(model: ir.Model, path: Path, layout: Layout, progress: Progress) -> None:
    """Write an ONNX file and, unless ``layout.inline``, the file of weights beside it, if any.

    Every weight in that file starts at a multiple of ``layout.alignment``.

    Raises:
        InvalidArgument: The model is too large to be written in one file.
    """
    if layout.inline:
        size = sum(tensor.nbytes for tensor in _tensors(model))
        if size > MAX_INLINE_BYTES:
            raise InvalidArgument(
                f"{size:,} bytes of weights do not fit into one .onnx file, which ends at 2 GiB",
                hint="leave out --inline",
            )
        progress(f"writing {path.name}", 0.5)
        with _of_weights_nothing_twice(model):
            ir.save(model, path)
        restore_map_types(model, path)
        return

    def tell(tensor: ir.TensorProtocol, info: Any) -> None:
        del tensor
        progress(f"writing weights to {info.filename}", info.index / max(info.total, 1))

    data_name = layout.data_name or f"{path.name}.data"
    with _of_weights_nothing_twice(model):
        ir.save(
            model,
            path,
            external_data=data_name,
            size_threshold_bytes=layout.threshold,
            callback=tell,
            alignment=layout.alignment,
            align_threshold=layout.threshold,
            max_workers=1,
        )
    data = path.with_name(data_name)
    if data.exists() and not data.stat().st_size:  # all are small enough to stay inside
        data.unlink()
    restore_map_types(model, path)


@contextmanager
def _of_weights_nothing_twice(model: ir.Model) -> Iterator[None]:
    """Take from weights meanwhile what is said of them beside their tensors.

    onnx_ir would write it as value_info. A tool that replaces a weight by one of another type
    leaves that where it is, and inference then finds that the model contradicts itself.
    """
    values = [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and not (value.is_graph_input() or value.is_graph_output())
    ]
    said = [(v, v.type, v.shape, v.doc_string, dict(v.metadata_props)) for v in values]
    try:
        for value in values:
            value.type = value.shape = value.doc_string = None
            value.metadata_props.clear()
        yield
    finally:
        for value, kind, shape, text, notes in said:
            value.type, value.shape, value.doc_string = kind, shape, text
            value.metadata_props.update(notes)


def _tensors(model: ir.Model) -> Iterable[ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value


def _move_into_place(folder: Path, target: Path) -> list[Path]:
    """Rename the written files to where they belong, the model itself last."""
    names = sorted((file.name for file in folder.iterdir()), key=lambda name: name == target.name)
    written = []
    for name in names:
        (folder / name).replace(target.parent / name)
        written.append(target.parent / name)
    return written
