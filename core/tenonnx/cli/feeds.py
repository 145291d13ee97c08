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
from tenonnx.graph.type_names import SCALAR
from tenonnx.interface.signature import describe

RANDOM = "random"
INPUT_FORMS = "NAME=FILE.npy, NAME=FILE.npz, NAME=random, NAME=VALUE, FILE.npz or random"
# Random integers are below it: small enough to be indices, sizes and token ids.
RANDOM_INTEGERS_BELOW = 8

# The greatest size that ONNX and numpy have a number for.
LARGEST_SIZE = 2**63 - 1

NDArray = np.ndarray[Any, np.dtype[Any]]


def make_feeds(
    graph: ir.Graph, texts: Sequence[str], dims: Mapping[str, int], seed: int
) -> dict[str, Any]:
    """Return the inputs that ``--input``, ``--dim`` and ``--seed`` ask for.

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
    made: set[str] = set()
    used: set[str] = set()
    for text in texts:
        name, source = _split(text, values)
        if name is not None:
            if name not in values:
                raise InvalidArgument(
                    f"the model has no input {name!r}{did_you_mean(name, values)}"
                )
            made.discard(name)
            if source == RANDOM:
                feeds[name] = random_input(values[name], dims, seed, used)
                made.add(name)
            elif source.endswith((".npy", ".npz")):
                feeds[name] = _load(source, values[name])
            else:
                feeds[name] = _parse(source, values[name])
        elif source == RANDOM:
            feeds |= {n: random_input(v, dims, seed, used) for n, v in required.items()}
            made.update(required)
        else:
            loaded = _load_all(source, values)
            made -= loaded.keys()
            feeds |= loaded
    _refuse_unused(dims, used, [values[name] for name in made], values.values())
    _refuse_missing([v for name, v in required.items() if name not in feeds])
    return feeds


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """Return the sizes in ``NAME=SIZE`` options.

    Raises:
        InvalidArgument: One is not of that form.
    """
    dims = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not (name and size.isdecimal() and size.isascii()):
            raise InvalidArgument(f"--dim {text}: expected NAME=SIZE, such as batch=4")
        if len(size.lstrip("0")) > len(str(LARGEST_SIZE)) or int(size) > LARGEST_SIZE:
            raise InvalidArgument(f"--dim {text}: a size is at most {LARGEST_SIZE:,}")
        dims[name] = int(size)
    return dims


def random_input(
    value: ir.Value, dims: Mapping[str, int], seed: int, used: set[str] | None = None
) -> NDArray:
    """Return a random array for a graph input: normal floats, small integers, short words.

    Args:
        value: The input.
        dims: As for ``make_feeds``.
        seed: For the generator.
        used: Takes the names in ``dims`` that had a say.

    Raises:
        InvalidArgument: The input is no tensor, not even its rank is known, ``dims`` gives a fixed
            size another value, or memory has no room for such an array.
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
        keys = [str(key) for key in (f"{arg.name}.{axis}", size) if key in dims]
        if isinstance(size, int) and any(dims[key] != size for key in keys):
            raise InvalidArgument(
                f"--dim {keys[0]}={dims[keys[0]]}: the model fixes that size at {size}"
            )
        shape.append(size if isinstance(size, int) else dims[keys[0]] if keys else 1)
        if used is not None:
            used.update(keys)
    generator = np.random.default_rng([seed, *(arg.name.encode())])
    try:
        return _random(generator, value.type.dtype, tuple(shape))
    except (MemoryError, ValueError) as error:  # numpy has a number for fewer bytes than sizes
        raise InvalidArgument(
            f"no memory for random input {arg.name!r} of shape {shape}",
            hint="--dim gives smaller sizes",
        ) from error


def _random(generator: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...]) -> NDArray:
    if dtype == ir.DataType.STRING:
        return generator.choice(np.array(["tenon", "mortise", "joint"], object), shape)
    target = dtype.numpy()
    if dtype == ir.DataType.BOOL:
        return generator.integers(0, 2, shape).astype(target)
    if dtype.is_integer():
        highest = min(RANDOM_INTEGERS_BELOW, 2 ** (dtype.bitwidth - dtype.is_signed()))
        return generator.integers(0, highest, shape).astype(target)
    if target.kind == "c":
        pair = generator.standard_normal((2, *shape))
        return np.asarray(pair[0] + 1j * pair[1]).astype(target)
    return np.asarray(generator.standard_normal(shape)).astype(target)


def _split(text: str, names: Mapping[str, Any]) -> tuple[str | None, str]:
    """Split an ``--input``; names may contain equals signs, so the model's go first."""
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, equals, source = text.partition("=")
    if equals:
        return name, source
    if text != RANDOM and not text.endswith(".npz"):
        raise InvalidArgument(f"--input {text}: expected {INPUT_FORMS}")
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
    """Return what JSON says, in the input's type."""
    try:
        content = json.loads(text)
    except ValueError:
        raise InvalidArgument(f"--input {value.name}={text}: expected {INPUT_FORMS}") from None
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
    """Give an array its type back that .npy has no word for: bfloat16, float8, int4."""
    if array.dtype.kind == "V" and isinstance(value.type, ir.TensorType):
        target = value.type.dtype.numpy()
        if target.itemsize == array.dtype.itemsize:
            return array.view(target)
    return array


def _refuse_unused(
    dims: Mapping[str, int],
    used: set[str],
    made: Iterable[ir.Value],
    inputs: Iterable[ir.Value],
) -> None:
    """Refuse a size of no random input.

    Args:
        dims: The sizes by name.
        used: The names of those that a random input has.
        made: The random inputs.
        inputs: All inputs.
    """
    unknown = next((name for name in dims if name not in used), None)
    if unknown is None:
        return
    given = [value.name for value in inputs if unknown in _sizes(value)]
    if given:
        raise InvalidArgument(
            f"--dim {unknown}: sizes are for random inputs, and {given[0]!r} is given",
            hint=f"leave --dim out, or say --input {given[0]}=random",
        )
    known = [size for value in made for size in _symbolic_sizes(value)]
    raise InvalidArgument(
        f"--dim {unknown}: no random input has that dimension"
        f"{did_you_mean(unknown, dict.fromkeys(known))}",
        hint=None if known else "no size can be chosen: leave --dim out",
    )


def _sizes(value: ir.Value) -> list[str]:
    """Return the names by which ``--dim`` knows an input's sizes."""
    shape = describe(value).shape
    return [f"{value.name}.{axis}" for axis in range(len(shape))] + [str(size) for size in shape]


def _symbolic_sizes(value: ir.Value) -> list[str]:
    """Return the names of an input's sizes that are not fixed."""
    return [
        size if isinstance(size, str) else f"{value.name}.{axis}"
        for axis, size in enumerate(describe(value).shape)
        if not isinstance(size, int)
    ]


def _refuse_missing(inputs: Sequence[ir.Value]) -> None:
    if not inputs:
        return
    args = [describe(value) for value in inputs]
    wanted = "; ".join(f"{arg.name} {arg.type} {shape_text(arg.shape)}" for arg in args)
    raise InvalidArgument(
        f"nothing is given for: {wanted}",
        hint=f"for example --input {args[0].name}=FILE.npy, or --input random for all",
    )
