"""Parts of steps that are no data (closures, lambdas, objects of onnx_ir), and models of all
steps."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests

import tenonnx

PLAIN = (
    type(None), bool, int, float, complex, str, bytes, type, np.generic, np.dtype, np.ufunc,
    types.ModuleType, slice, range,
)  # fmt: skip
"""Types of data that refer to nothing else."""

TESTS = Path(__file__).parent

CACHED = type(functools.lru_cache(len))


def not_data(calls: Iterable[Any], *, without: tuple[type, ...] = ()) -> set[str]:
    """Return the kinds of everything that steps' calls refer to and that is no data.

    Instances of the types ``without``, such as a device, are passed over.

    A closure or lambda is named by its module and qualified name, an object of onnx_ir by its type
    and what refers to it.
    """
    seen: dict[int, Any] = {}
    found: set[str] = set()
    waiting = [(call, "a step") for call in calls]
    while waiting:
        thing, owner = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept alive, so that no other object gets its identity
        if isinstance(thing, without):
            continue
        if type(thing).__module__.startswith("onnx_ir"):
            found.add(f"onnx_ir.{type(thing).__name__} in {owner}")
        elif isinstance(thing, types.FunctionType):
            name = f"{thing.__module__}.{thing.__qualname__}"
            if "<" in thing.__qualname__:
                found.add(name)
        else:
            name = owner if _is_container(thing) else _named(thing)
            waiting += [(part, name) for part in _parts(thing)]
    return found


def _is_container(thing: Any) -> bool:
    return type(thing) in (tuple, list, dict, set, frozenset) or isinstance(
        thing, functools.partial | types.MethodType | types.BuiltinFunctionType
    )


def _named(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _parts(thing: Any) -> Iterator[Any]:
    if isinstance(thing, (*PLAIN, tenonnx.Provider)):
        return
    if isinstance(thing, np.ndarray):
        if thing.dtype.hasobject:
            yield from thing.flat
    elif isinstance(thing, functools.partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, types.MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, types.BuiltinFunctionType):
        yield thing.__self__
    elif isinstance(thing, CACHED):
        yield thing.__wrapped__
    elif isinstance(thing, dict):
        yield from (*thing.keys(), *thing.values())
    elif isinstance(thing, tuple | list | set | frozenset):
        yield from thing
        yield from vars(thing).values() if hasattr(thing, "__dict__") else ()
    elif not type(thing).__module__.startswith(("tenonnx.weights", "threading", "_thread")):
        yield from vars(thing).values() if hasattr(thing, "__dict__") else ()
        for kind in type(thing).__mro__:
            slots = vars(kind).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(thing, name):
                    yield getattr(thing, name)


def kinds_of(model: onnx.ModelProto) -> frozenset[Any]:
    """The operators of a model, with the names of their attributes."""
    return frozenset(
        (node.domain, node.op_type, *sorted(attribute.name for attribute in node.attribute))
        for node in model.graph.node
    )


def onnx_models() -> Iterator[onnx.ModelProto]:
    """ONNX's models of a node, one of each kind, without those of its functions' bodies."""
    seen: set[Any] = set()
    with warnings.catch_warnings():
        # The suite's own data generation overflows and divides by zero on purpose.
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    for case in cases:
        if case.name.endswith("_expanded"):
            continue
        model = case.model or onnx.load(Path(case.model_dir, "model.onnx"))
        if (kinds := kinds_of(model)) not in seen:
            seen.add(kinds)
            yield model


def exported() -> Iterator[Path]:
    yield from TESTS.glob("exports/*.onnx")
    yield from TESTS.glob("contrib/optimized/*.onnx")
