"""Operator tables: which Python function computes which ONNX operator, from which opset on.

A kernel's signature *is* the operator's schema. Its first parameter is the array namespace,
positional parameters are the inputs (``None`` when an optional one is absent, ``*args`` when
variadic), keyword-only ones are the attributes with the specification's defaults::

    @op("Gather", since=1)
    def gather(xp, data, indices, *, axis=0): ...
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from tenonnx.errors import InvalidArgument, PluginError

Array: TypeAlias = Any
"""An array of whichever namespace runs the kernel."""

Namespace: TypeAlias = Any
"""An array namespace with numpy's names: numpy, cupy, ..."""

Host: TypeAlias = tuple[int, ...] | Literal["all"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Kernel:
    """One implementation of an operator.

    Attributes:
        domain: Operator domain; ``""`` is ai.onnx.
        op_type: Operator name.
        since: First opset version it serves, until the next kernel's.
        call: The function, or the name of one in the array namespace that is the operator.
        host: Inputs that must be numpy arrays (shapes, axes), or ``"all"``: the kernel runs on
            the host whatever the device, with numpy as its namespace.
        host_output: The results are numpy arrays although the inputs are not (Shape, Size).
        multiple: The call returns a tuple of outputs rather than one.
    """

    domain: str
    op_type: str
    since: int
    call: Callable[..., Any] | str
    host: Host = ()
    host_output: bool = False
    multiple: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Keyword-only parameters: name to default (``inspect.Parameter.empty`` when required)."""

    def bind(
        self, xp: Namespace, attributes: Mapping[str, Any], outputs: int
    ) -> Callable[..., Any]:
        """Returns a callable of the inputs alone.

        Args:
            xp: The array namespace.
            attributes: The node's attributes, as Python values.
            outputs: How many outputs the node names; reaches the kernel as ``_outputs`` if it
                asks for it.

        Raises:
            InvalidArgument: The node has an attribute the operator does not, or lacks one.
        """
        given = {name: value for name, value in attributes.items() if name in self.attributes}
        if unknown := attributes.keys() - self.attributes.keys():
            known = ", ".join(n for n in self.attributes if not n.startswith("_")) or "none"
            raise InvalidArgument(
                f"{self} has no attribute {', '.join(sorted(unknown))} (it has: {known})"
            )
        if "_outputs" in self.attributes:
            given["_outputs"] = outputs
        for name, default in self.attributes.items():
            if name in given:
                continue
            if default is inspect.Parameter.empty:
                raise InvalidArgument(f"{self} needs the attribute {name}")
            if isinstance(default, float):
                # A model's floats have 32 bits, and so have those that it leaves out.
                given[name] = ctypes.c_float(default).value
        if isinstance(self.call, str):
            function: Callable[..., Any] = functools.reduce(getattr, self.call.split("."), xp)
            return functools.partial(function, **given) if given else function
        return functools.partial(self.call, xp, **given)

    def __str__(self) -> str:
        return f"{self.domain or 'ai.onnx'}::{self.op_type}-{self.since}"


class OperatorTable:
    """Kernels by domain, name and version; later additions win over earlier ones.

    Args:
        domain: Domain of the operators that ``op`` and ``rows`` add.
    """

    def __init__(self, domain: str = "") -> None:
        self.domain = "" if domain == "ai.onnx" else domain
        self._kernels: dict[tuple[str, str], dict[int, Kernel]] = {}

    def op(
        self,
        *names: str,
        since: int = 1,
        host: Host = (),
        host_output: bool = False,
        multiple: bool = False,
        without: Iterable[str] = (),
    ) -> Callable[[F], F]:
        """Decorates a kernel: ``@table.op("Softmax", since=13)``.

        Several names register the function for each of them; the decorator can be stacked to
        serve one function from several versions on. ``without`` names the attributes that the
        operator does not have in these versions.
        """

        def decorate(function: F) -> F:
            for name in names:
                kernel = Kernel(self.domain, name, since, function, host, host_output, multiple)
                self._add(kernel, without)
            return function

        return decorate

    def rows(
        self,
        functions: Mapping[str, Callable[..., Any] | str],
        *,
        since: int = 1,
        host: Host = (),
    ) -> None:
        """Adds one-expression operators: a namespace function's name, or a lambda with ``xp``."""
        for name, function in functions.items():
            self._add(Kernel(self.domain, name, since, function, host))

    def _add(self, kernel: Kernel, without: Iterable[str] = ()) -> None:
        versions = self._kernels.setdefault((kernel.domain, kernel.op_type), {})
        if kernel.since in versions:
            raise PluginError(f"{versions[kernel.since]} is already in this table")
        versions[kernel.since] = replace(kernel, attributes=_attributes_of(kernel.call, without))

    def update(self, *others: OperatorTable) -> OperatorTable:
        """Adds the kernels of other tables over this one's; returns itself."""
        for other in others:
            for key, versions in other._kernels.items():
                self._kernels.setdefault(key, {}).update(versions)
        return self

    def find(self, domain: str, op_type: str, version: int) -> Kernel | None:
        """Returns the kernel for an operator at an opset version, or ``None``."""
        versions = self._kernels.get(("" if domain == "ai.onnx" else domain, op_type), {})
        since = max((v for v in versions if v <= version), default=None)
        return None if since is None else versions[since]

    def __iter__(self) -> Iterator[Kernel]:
        for versions in self._kernels.values():
            yield from versions.values()

    def __len__(self) -> int:
        return sum(map(len, self._kernels.values()))


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns keyword-only parameters and their defaults.

    It says what ``inspect.signature`` says, in a tenth of its time: there are hundreds of kernels.
    """
    plain = inspect.unwrap(function, stop=lambda f: hasattr(f, "__signature__"))
    if hasattr(plain, "__signature__") or not inspect.isfunction(plain):
        parameters = inspect.signature(plain).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    code, defaults = plain.__code__, plain.__kwdefaults__ or {}
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return {name: defaults.get(name, inspect.Parameter.empty) for name in names}


def _attributes_of(function: Callable[..., Any] | str, without: Iterable[str]) -> dict[str, Any]:
    if isinstance(function, str):
        return {}
    attributes = _keywords(function)
    for name in without:
        del attributes[name]
    return attributes
