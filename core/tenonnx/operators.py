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
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from tenonnx import errors
from tenonnx.by_name import mark_functions
from tenonnx.errors import InvalidArgument

# An array of whichever namespace runs the kernel.
Array: TypeAlias = Any

# An array namespace with numpy's names: numpy, cupy, ...
Namespace: TypeAlias = Any

Host: TypeAlias = tuple[int, ...] | Literal["all"]

F = TypeVar("F", bound=Callable[..., Any])

# The attribute of a kernel that names what its ``**attributes`` are passed on to.
#
# If it takes ``*inputs``, these go to the first of them: a function, or a namespace's by its
# name.
PASSES_ON = "_passes_on_to"


# The attribute of a kernel that declares the shapes of its operands.
SHAPES = "_operand_shapes"


@dataclass(frozen=True)
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

    shapes: str = ""
    """The shapes of its operands, in the language of ``tenonnx.graph.operand_shapes``."""

    def bind(
        self, xp: Namespace, attributes: Mapping[str, Any], outputs: int
    ) -> Callable[..., Any]:
        """Return a callable of the inputs alone.

        Args:
            xp: The array namespace.
            attributes: The node's attributes, as Python values.
            outputs: The number of outputs that the node names; a kernel with a parameter
                ``_outputs`` gets it.

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

    def arity(self) -> tuple[int, float]:
        """Return how many inputs it needs at least, and how many it takes."""
        return _arity(self.call)

    def operands(self) -> tuple[str, ...]:
        """Return the names of its positional parameters, without the namespace."""
        return _operands(self.call)

    def defaults(self) -> dict[str, Any]:
        """Return its attributes' defaults, with those that these versions lack."""
        return _defaults(self.call)

    def misfit(self, inputs: Sequence[object]) -> str | None:
        """Return why a node of these inputs is none of its operator's; ``None`` if it is."""
        least, most = self.arity()
        if self.domain:  # others add inputs without a new version; absent ones are no matter
            while inputs and inputs[-1] is None:
                inputs = inputs[:-1]
        elif None in inputs[:least]:
            return f"{self} needs its first {least} inputs, the node lacks one of them"
        if not least <= len(inputs) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            wanted = f"at least {least}" if most == math.inf else wanted
            noun = "input" if (least if most == math.inf else most) == 1 else "inputs"
            return f"{self} takes {wanted} {noun}, the node has {len(inputs)}"
        return None

    def __str__(self) -> str:
        return kernel_name(self.domain, self.op_type, self.since)


def kernel_name(domain: str, op_type: str, since: int) -> str:
    """Return how kernels are called in messages: ``ai.onnx::Softmax-13``."""
    return f"{domain or 'ai.onnx'}::{op_type}-{since}"


class OperatorTable:
    """Kernels by domain, name and version; later additions win over earlier ones.

    Args:
        domain: Domain of the operators that ``op`` and ``rows`` add.
    """

    def __init__(self, domain: str = "") -> None:
        self.domain, _ = _key(domain, "")
        self._kernels: dict[tuple[str, str], dict[int, Kernel | str]] = {}
        self._found: dict[tuple[str, str, int], Kernel | None] = {}

    @classmethod
    def listed(cls, package: str, listing: Mapping[str, str], domain: str = "") -> OperatorTable:
        """Return a table whose modules are imported when one of their kernels is first needed.

        Args:
            package: Where the modules are. Each has an ``OperatorTable`` called ``table``.
            listing: By module, what its table has: ``"Softmax-1 Softmax-13"``, an operator and
                the version it serves from, with ``domain::`` before it where that is another.
            domain: Domain of the operators that are listed without one.
        """
        made = cls(domain)
        for module, kernels in listing.items():
            for kernel in kernels.split():
                name, _, since = kernel.rpartition("-")
                *others, op_type = name.split("::")
                key = _key(others[0] if others else domain, op_type)
                made._kernels.setdefault(key, {})[int(since)] = f"{package}.{module}"
        return made

    def op(
        self,
        *names: str,
        since: int = 1,
        host: Host = (),
        host_output: bool = False,
        multiple: bool = False,
        without: Iterable[str] = (),
        like: Sequence[Callable[..., Any]] = (),
        shapes: str = "",
    ) -> Callable[[F], F]:
        """Decorate a kernel: ``@table.op("Softmax", since=13)``.

        The function's signature is the operator's schema: a namespace (``xp``), inputs in order,
        ``None`` for an absent one, attributes as keywords. The decorator can be stacked to serve
        one function from several versions on.

        Args:
            *names: Operators that the function computes.
            since: The opset version from which on it serves, until a later one's.
            host: Inputs, by position or ``"all"``, that it takes as numpy arrays on every device.
            host_output: Whether its outputs are numpy arrays on every device.
            multiple: Whether it returns a tuple of outputs.
            without: Attributes that the operator does not have in these versions.
            like: Functions that it passes ``**attributes`` on to, so that it has what these have;
                for whatever else the function is registered for, too.
            shapes: What the shapes of its operands must be, in the language of
                ``tenonnx.graph.operand_shapes``, for whatever else the function is registered
                for, too. They are checked before it is called.

        Raises:
            PluginError: No name is given, or the table has the kernel already.
        """
        if not names or not isinstance(names[0], str):
            raise errors.PluginError(
                "a kernel needs its operator's name: @table.op('Softmax', since=13)"
            )

        def decorate(function: F) -> F:
            if like:
                vars(function).setdefault(PASSES_ON, like)
            attributes = _attributes_of(function, without, like)
            if shapes:
                vars(function).setdefault(SHAPES, shapes)
            declared = getattr(function, SHAPES, "")
            how = function, host, host_output, multiple, attributes, declared
            for name in names:
                self._add(Kernel(self.domain, name, since, *how))
            return function

        return decorate

    def rows(
        self,
        functions: Mapping[str, Callable[..., Any] | str],
        *,
        since: int = 1,
        host: Host = (),
    ) -> None:
        """Add operators of one expression each.

        Args:
            functions: By operator, the name of a function of the namespace, or a lambda that takes
                ``xp`` and the inputs.
            since: As for ``op``.
            host: As for ``op``.

        Raises:
            PluginError: The table has one of the kernels already.
        """
        for name, function in functions.items():
            attributes = _attributes_of(function)
            self._add(Kernel(self.domain, name, since, function, host, attributes=attributes))

    def copy(self) -> OperatorTable:
        """Return a table of the same kernels, which does not get what is added to this one."""
        return OperatorTable(self.domain).update(self)

    def _add(self, kernel: Kernel) -> None:
        mark_functions(kernel.call, self)
        key = (kernel.domain, kernel.op_type)
        versions = self._kernels.get(key, {})
        if kernel.since in versions:
            raise errors.PluginError(f"{kernel} is already in this table")
        self._kernels[key] = versions | {kernel.since: kernel}
        self._found.clear()

    def update(self, *others: OperatorTable) -> OperatorTable:
        """Add the kernels of other tables over this one's; return itself."""
        for other in others:
            mine, theirs = self._kernels, other._kernels
            # Versions are shared: every provider of every session has such a table.
            both = {key: mine[key] | theirs[key] for key in mine.keys() & theirs.keys()}
            self._kernels = mine | theirs | both
            self._found.clear()
        return self

    def find(self, domain: str, op_type: str, version: int) -> Kernel | None:
        """Return the kernel for an operator, or ``None``.

        Args:
            domain: The operator's domain; ``""`` and ``"ai.onnx"`` are ONNX's own.
            op_type: The operator's name.
            version: The opset version that a node is written in.
        """
        asked = domain, op_type, version
        if asked not in self._found:
            key = _key(domain, op_type)
            since = max((v for v in self._kernels.get(key, ()) if v <= version), default=0)
            self._found[asked] = self._kernel(key, since) if since else None
        return self._found[asked]

    def names(self) -> Iterator[str]:
        """Yield the kernels as ``ai.onnx::Softmax-13``, without importing any."""
        for (domain, op_type), versions in self._kernels.items():
            for since in versions:
                yield kernel_name(domain, op_type, since)

    def _kernel(self, key: tuple[str, str], since: int) -> Kernel:
        kernel = self._kernels[key][since]
        if isinstance(kernel, str):
            table: OperatorTable = importlib.import_module(kernel).table
            kernel = self._kernels[key][since] = table._kernel(key, since)
        return kernel

    def __iter__(self) -> Iterator[Kernel]:
        for key, versions in self._kernels.items():
            for since in versions:
                yield self._kernel(key, since)

    def __len__(self) -> int:
        return sum(map(len, self._kernels.values()))


def _key(domain: str, op_type: str) -> tuple[str, str]:
    return "" if domain == "ai.onnx" else domain, op_type


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Return keyword-only parameters and their defaults.

    It has the content of ``inspect.signature``, in a tenth of its time: there are hundreds of
    kernels.
    """
    if isinstance(function, functools.partial):
        given = function.keywords
        return {name: given.get(name, of) for name, of in _keywords(function.func).items()}
    plain = inspect.unwrap(function, stop=lambda f: hasattr(f, "__signature__"))
    if hasattr(plain, "__signature__") or not inspect.isfunction(plain):
        parameters = inspect.signature(plain).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    code, defaults = plain.__code__, plain.__kwdefaults__ or {}
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return {name: defaults.get(name, inspect.Parameter.empty) for name in names}


@functools.cache
def _arity(function: Callable[..., Any] | str) -> tuple[int, float]:
    """Return how many positional parameters a kernel needs and has, without its namespace.

    Of a namespace's own function it says what numpy's takes, of one that passes its inputs on what
    the other takes: numpy would write to an input too many. Nothing is known of one that numpy
    lacks, or that has another signature than Python's.
    """
    others = getattr(function, PASSES_ON, ())
    bound = 1  # its namespace
    while isinstance(function, functools.partial):
        bound += len(function.args)
        function = function.func
    if isinstance(function, str):
        import numpy as np

        named: Any = np
        for part in function.split("."):
            named = getattr(named, part, None)
        return (named.nin, named.nin) if isinstance(named, np.ufunc) else (0, math.inf)
    plain = inspect.unwrap(function, stop=lambda f: hasattr(f, "__signature__"))
    if hasattr(plain, "__signature__") or not inspect.isfunction(plain):
        return 0, math.inf
    code = plain.__code__
    is_variadic = code.co_flags & inspect.CO_VARARGS
    if is_variadic and (others := others or getattr(plain, PASSES_ON, ())):
        return _arity(others[0])
    count = max(0, code.co_argcount - bound)
    return max(0, count - len(plain.__defaults__ or ())), math.inf if is_variadic else count


@functools.cache
def _operands(function: Callable[..., Any] | str) -> tuple[str, ...]:
    plain: Any = function
    bound = 0
    while isinstance(plain, functools.partial):
        plain, bound = plain.func, bound + len(plain.args)
    code = getattr(inspect.unwrap(plain) if callable(plain) else None, "__code__", None)
    return code.co_varnames[1 + bound : code.co_argcount] if code is not None else ()


@functools.cache
def _defaults(function: Callable[..., Any] | str) -> dict[str, Any]:
    found = _attributes_of(function)
    return {name: None if x is inspect.Parameter.empty else x for name, x in found.items()}


def _attributes_of(
    function: Callable[..., Any] | str,
    without: Iterable[str] = (),
    like: Sequence[Callable[..., Any]] = (),
) -> dict[str, Any]:
    if isinstance(function, str):
        return {}
    attributes: dict[str, Any] = {}
    for other in like or getattr(function, PASSES_ON, ()):
        attributes |= _attributes_of(other)
    attributes |= _keywords(function)
    for name in without:
        del attributes[name]
    return attributes
