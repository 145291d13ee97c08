"""Inputs for a run, from files or made up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.cli.output import shape_text
from tenonnx.errors import InvalidArgument, did_you_mean
from tenonnx.interface.signature import describe
from tenonnx.type_names import SCALAR

RANDOM = "random"
FORMS = "NAME=FILE.npy, NAME=FILE.npz, NAME=random, NAME=VALUE, FILE.npz or random"
HIGHEST = 8
"""Random integers are below it: small enough to be indices, sizes and token ids."""

NDArray = np.ndarray[Any, np.dtype[Any]]


def make_feeds(
    graph: ir.Graph, texts: Sequence[str], dims: Mapping[str, int], seed: int
) -> dict[str, Any]:
    """Returns the inputs that ``--input``, ``--dim`` and ``--seed`` ask for.

    Args:
        graph: The model's graph; names that an ``--input`` of all inputs holds beyond its
            inputs are left out.
        texts: The ``--input`` options. Later ones win.
        dims: Sizes of symbolic dimensions, by name or as ``INPUT.AXIS``; others are 1.
        seed: For random inputs; each input's content depends on the seed and its name only.

    Raises:
        InvalidArgument: An option of another form, a file that cannot be read, an input or a
            dimension that the model has not.
    """
    values = {value.name or "": value for value in graph.inputs}
    required = {
        name: value
        for name, value in values.items()
        if not value.is_initializer() and not isinstance(value.type, ir.OptionalType)
    }
    feeds: dict[str, Any] = {}
    used: set[str] = set()
    for text in texts:
        name, source = _split(text, values)
        if name is not None:
            if name not in values:
                raise InvalidArgument(
                    f"the model has no input {name!r}{did_you_mean(name, values)}"
                )
            if source == RANDOM:
                feeds[name] = random_input(values[name], dims, seed, used)
            elif source.endswith((".npy", ".npz")):
                feeds[name] = _load(source, values[name])
            else:
                feeds[name] = _parse(source, values[name])
        elif source == RANDOM:
            feeds |= {n: random_input(v, dims, seed, used) for n, v in required.items()}
        else:
            feeds |= _load_all(source, values)
    _refuse_unused(dims, used, required.values())
    _refuse_missing([v for name, v in required.items() if name not in feeds])
    return feeds


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """Returns the sizes in ``NAME=SIZE`` options.

    Raises:
        InvalidArgument: One is not of that form.
    """
    dims = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise InvalidArgument(f"--dim {text}: expected NAME=SIZE, such as batch=4")
        dims[name] = int(size)
    return dims


def random_input(
    value: ir.Value, dims: Mapping[str, int], seed: int, used: set[str] | None = None
) -> NDArray:
    """Returns a random array for a graph input: normal floats, small integers, short words.

    Args:
        value: The input.
        dims: As for ``make_feeds``.
        seed: For the generator.
        used: Takes the names in ``dims`` that had a say.

    Raises:
        InvalidArgument: The input is no tensor, or not even its rank is known.
    """
    arg = describe(value)
    if not isinstance(value.type, ir.TensorType):
        raise InvalidArgument(f"input {arg.name!r} is {arg.type}; random makes tensors only")
    if value.shape is None and SCALAR not in value.meta:
        raise InvalidArgument(
            f"input {arg.name!r} has no shape in the model, so none can be made up",
            hint=f"give a file: --input {arg.name}=FILE.npy",
        )
    shape = []
    for axis, size in enumerate(arg.shape):
        keys = [key for key in (f"{arg.name}.{axis}", size) if key in dims]
        shape.append(size if isinstance(size, int) else dims[str(keys[0])] if keys else 1)
        if used is not None:
            used.update(map(str, keys))
    generator = np.random.default_rng([seed, *(arg.name.encode())])
    return _random(generator, value.type.dtype, tuple(shape))


def _random(generator: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...]) -> NDArray:
    if dtype == ir.DataType.STRING:
        return generator.choice(np.array(["tenon", "mortise", "joint"], object), shape)
    target = dtype.numpy()
    if dtype == ir.DataType.BOOL:
        return generator.integers(0, 2, shape).astype(target)
    if dtype.is_integer():
        highest = min(HIGHEST, 2 ** (dtype.bitwidth - dtype.is_signed()))
        return generator.integers(0, highest, shape).astype(target)
    if target.kind == "c":
        pair = generator.standard_normal((2, *shape))
        return np.asarray(pair[0] + 1j * pair[1]).astype(target)
    return np.asarray(generator.standard_normal(shape)).astype(target)


def _split(text: str, names: Mapping[str, Any]) -> tuple[str | None, str]:
    """Splits an ``--input``; names may contain equals signs, so the model's go first."""
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, equals, source = text.partition("=")
    if equals:
        return name, source
    if text != RANDOM and not text.endswith(".npz"):
        raise InvalidArgument(f"--input {text}: expected {FORMS}")
    return None, text


def _load(path: str, value: ir.Value) -> Any:
    content = _read(path)
    if isinstance(content, dict):
        if value.name not in content and len(content) != 1:
            raise InvalidArgument(
                f"{path} has no array {value.name!r}{did_you_mean(value.name or '', content)}"
            )
        content = content.get(value.name or "", next(iter(content.values())))
    return _fit(content, value)


def _parse(text: str, value: ir.Value) -> NDArray:
    """Returns what JSON says, in the input's type."""
    try:
        content = json.loads(text)
    except ValueError:
        raise InvalidArgument(f"--input {value.name}={text}: expected {FORMS}") from None
    if not isinstance(value.type, ir.TensorType):
        raise InvalidArgument(f"input {value.name!r} is {describe(value).type}, no tensor")
    try:
        return np.asarray(content, value.type.dtype.numpy())
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"--input {value.name}={text}: {error}") from error


def _load_all(path: str, values: Mapping[str, ir.Value]) -> dict[str, Any]:
    content = _read(path)
    assert isinstance(content, dict), "only .npz files feed all inputs"
    found = {name: _fit(content[name], v) for name, v in values.items() if name in content}
    if not found:
        raise InvalidArgument(
            f"{path} has none of the model's inputs ({', '.join(values)}); "
            f"it has {', '.join(content) or 'nothing'}"
        )
    return found


def _read(path: str) -> NDArray | dict[str, NDArray]:
    try:
        content = np.load(Path(path), allow_pickle=False)
        if isinstance(content, np.lib.npyio.NpzFile):
            with content:
                return dict(content)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # zipfile's, zlib's and numpy's own, as the damage has it
        raise InvalidArgument(
            f"{path} cannot be read: it is damaged, or holds no arrays of numpy's",
            hint="write arrays with numpy.save(FILE, ARRAY) or numpy.savez(FILE, NAME=ARRAY)",
        ) from error
    return np.asarray(content)


def _fit(array: NDArray, value: ir.Value) -> NDArray:
    """Gives an array its type back that .npy has no word for: bfloat16, float8, int4."""
    if array.dtype.kind == "V" and isinstance(value.type, ir.TensorType):
        target = value.type.dtype.numpy()
        if target.itemsize == array.dtype.itemsize:
            return array.view(target)
    return array


def _refuse_unused(dims: Mapping[str, int], used: set[str], inputs: Iterable[ir.Value]) -> None:
    unknown = next((name for name in dims if name not in used), None)
    if unknown is None:
        return
    known = [
        size if isinstance(size, str) else f"{value.name}.{axis}"
        for value in inputs
        for axis, size in enumerate(describe(value).shape)
        if not isinstance(size, int)
    ]
    raise InvalidArgument(
        f"--dim {unknown}: no random input has that dimension"
        f"{did_you_mean(unknown, dict.fromkeys(known))}",
        hint=None if known else "all sizes are fixed: leave --dim out",
    )


def _refuse_missing(inputs: Sequence[ir.Value]) -> None:
    if not inputs:
        return
    args = [describe(value) for value in inputs]
    wanted = "; ".join(f"{arg.name} {arg.type} {shape_text(arg.shape)}" for arg in args)
    raise InvalidArgument(
        f"nothing is given for: {wanted}",
        hint=f"for example --input {args[0].name}=FILE.npy, or --input random for all",
    )
