"""Functions in LLVM's language that are compiled once, and called by any kernel.

numba compiles a helper anew into every function that calls it, and that into every one that calls
it in turn; for micro-kernels, which nobody inlines, that is most of the time spent. These have an
object of their own per module, which is linked with those of the kernels.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.vectors.vector import I64, VOID, Builder, Value

Body = Callable[[Builder, Sequence[Value]], Any]
Variants = Iterable[tuple[Any, ...]] | Mapping[tuple[Any, ...], tuple[Any, ...]]

RADIX = 128
# numba's types of what functions take, by LLVM's names.
NUMBERS = {"i64": types.intp, "i32": types.int32, "i8": types.uint8, "float": types.float32}

# The functions created so far, by the file of their module.
GROUPS: dict[str, list[Shared]] = {}


class Shared:
    """A function without a result; creating it makes it known.

    Args:
        file: ``__file__`` of the module it belongs to.
        name: Its symbol, of which there is one in a library.
        arguments: Types of its arguments.
        body: Writes it, but for the return at its end.
        exported: Whether it is called from outside of the library, too.
    """

    def __init__(
        self,
        file: str,
        name: str,
        arguments: Sequence[ir.Type],
        body: Body,
        *,
        exported: bool = False,
    ) -> None:
        self.name = name
        self.kind = ir.FunctionType(VOID, list(arguments))
        self.body = body
        self.is_exported = exported
        GROUPS.setdefault(file, []).append(self)

    def call(self, builder: Builder, values: Sequence[Value]) -> None:
        """Call it where the builder is."""
        builder.call(cgutils.get_or_insert_function(builder.module, self.kind, self.name), values)

    def define(self, module: ir.Module) -> None:
        """Write it into a module."""
        function = ir.Function(module, self.kind, self.name)
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.body(builder, function.args)
        builder.ret_void()


def shared(
    name: str, variants: Variants = ((),), last: Sequence[ir.Type] = ()
) -> Callable[[Callable[..., Any]], Any]:
    """Declare functions that kernels call, by their writer: ``def tile(b, rows, /, x, y)``.

    After the slash are the arguments, addresses and numbers. Before it are the builder and the
    parameters that tell variants apart, the key. Kernels call the result
    with the variant's key, then the arguments: ``tile(4, x, y)``.

    Args:
        name: The symbols' prefix; a variant's key follows.
        variants: The keys; or the parameters between builder and slash, by key.
        last: Types of the last arguments; others are int64.
    """
    given = variants if isinstance(variants, Mapping) else {key: key for key in variants}

    def declare(write: Callable[..., Any]) -> Any:
        parameters = inspect.signature(write).parameters.values()
        own = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        kinds = [*[I64] * (len(own) - len(last)), *last]
        functions = {
            key: Shared(
                write.__code__.co_filename,
                "_".join(map(str, (name, *key))),
                kinds,
                functools.partial(_write, write, form),
            )
            for key, form in given.items()
        }
        return _called(write.__name__, functions, own)

    return declare


def _write(
    write: Callable[..., Any], form: Sequence[Any], builder: Builder, values: Sequence[Value]
) -> None:
    write(builder, *form, *values)


def under(called: Any, *start: Any) -> Any:
    """Return what kernels call for the variants whose keys begin so, by the rest of their keys."""
    functions = {
        key[len(start) :]: made
        for key, made in called.functions.items()
        if key[: len(start)] == start
    }
    return _called("_".join(map(str, (called.__name__, *start))), functions, called.arguments)


def _called(name: str, functions: Mapping[Any, Shared], arguments: Sequence[str]) -> Any:
    """Return the intrinsic that calls one of some functions."""

    def define(typing_context: Any, *given: Any) -> Any:
        return one_of(functions)

    # numba binds what it is called with to these, and tells intrinsics apart by their names.
    keys = [f"key_{n}" for n in range(len(next(iter(functions), ())))]
    define.__name__ = define.__qualname__ = name
    define.__signature__ = inspect.Signature(  # type: ignore[attr-defined] # inspect reads it
        [
            inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for each in ("typing_context", *keys, *arguments)
        ]
    )
    made = intrinsic(define)
    made.functions, made.arguments = functions, arguments
    return made


def one_of(functions: Mapping[Any, Shared]) -> tuple[Any, Callable[..., Any]]:
    """Return the type and the code of an intrinsic that calls one of some functions.

    Its first arguments are the function's key: as many whole numbers, less than ``RADIX`` each. It
    does nothing if there is no such function.
    """
    key, first = next(iter(functions.items()))
    own = [NUMBERS[str(kind)] for kind in first.kind.args]

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        done = builder.append_basic_block("done")
        number = _joined(builder, values[: len(key)])
        choice = builder.switch(number, done)
        for place, function in functions.items():
            block = builder.append_basic_block(function.name)
            choice.add_case(I64(functools.reduce(lambda n, one: n * RADIX + one, place, 0)), block)
            builder.position_at_end(block)
            function.call(builder, values[len(key) :])
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.intp] * len(key), *own), generate


def _joined(builder: Builder, numbers: Sequence[Value]) -> Value:
    joined = I64(0)
    for number in numbers:
        joined = builder.add(builder.mul(joined, I64(RADIX)), number)
    return joined


def module_of(file: str) -> ir.Module:
    """Return a module with the functions of a file."""
    stem = Path(file).stem
    module = numba_target.context().codegen().create_library(stem).create_ir_module(stem)
    for function in GROUPS[file]:
        function.define(module)
    return module
