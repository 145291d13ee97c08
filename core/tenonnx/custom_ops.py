"""Operators from Python functions: decorate one, and models may use it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tenonnx.errors import InvalidArgument
from tenonnx.operators import OperatorTable

Function = TypeVar("Function", bound=Callable[..., Any])

# The operators that every session of the process has.
GLOBAL: Final = OperatorTable()


def operator(name: str, *, since: int = 1, outputs: int = 1) -> Callable[[Function], Function]:
    """Make the decorated function an operator of every session built from now on.

    The function's signature is the operator's schema: positional parameters are inputs, ``None``
    when an optional one is absent, and ``*args`` takes any number of them; keyword-only ones
    are attributes, with their defaults. It gets numpy arrays; if its first parameter is called
    ``xp``, that is the array namespace of the provider that runs the node, whose arrays it gets::

        @tenonnx.operator("com.example::RunningMax", since=2)
        def running_max(x, *, axis=0):
            return np.maximum.accumulate(x, axis)

    Args:
        name: ``domain::Operator``; a domain is what follows ``opset_import`` in the model.
        since: The first version of the domain that it serves, until another function's.
        outputs: How many outputs it has; a function of several returns a tuple.

    Raises:
        InvalidArgument: The name has no domain, or the function has no readable signature.
    """
    return add_to(GLOBAL, name, since=since, outputs=outputs)


def add_to(
    table: OperatorTable, name: str, *, since: int = 1, outputs: int = 1
) -> Callable[[Function], Function]:
    """Make the decorated function an operator of a table; the last one of a name wins."""
    domain, colons, op_type = name.rpartition("::") if isinstance(name, str) else ("", "", "")
    if not (colons and op_type):
        raise InvalidArgument(
            f"an operator is named 'domain::Operator', not {name!r}",
            hint=f"for example 'com.example::{op_type or 'MyOp'}', or 'ai.onnx::{op_type}'",
        )

    def decorate(function: Function) -> Function:
        portable = _takes_namespace(function, name)
        own = OperatorTable(domain)
        own.op(
            op_type,
            since=since,
            host=() if portable else "all",
            multiple=outputs != 1,
        )(function if portable else _over_numpy(function))
        table.update(own)
        return function

    return decorate


def _takes_namespace(function: Callable[..., Any], name: str) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"{function!r} has no signature that could be the schema of {name}: {error}",
            hint="wrap it in a function of your own",
        ) from None
    return parameters[:1] == ["xp"]


def _over_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def kernel(xp: Any, *inputs: Any, **attributes: Any) -> Any:
        del xp
        return function(*inputs, **attributes)

    own = inspect.signature(function)
    first = inspect.Parameter("xp", inspect.Parameter.POSITIONAL_ONLY)
    signature = own.replace(parameters=[first, *own.parameters.values()])
    kernel.__signature__ = signature  # type: ignore[attr-defined]  # mypy knows no such attribute
    return kernel
