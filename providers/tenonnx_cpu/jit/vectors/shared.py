"""Functions in LLVM's language that are compiled once, and called by any kernel.

numba compiles a helper anew into every function that calls it, and that into every one that calls
it in turn; for micro-kernels, which nobody inlines, that is most of the time spent. These have an
code object of their own per module, in the disk cache beside the kernels.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from tenonnx_cpu.jit.code import building, code_object, library_file, numba_target
from tenonnx_cpu.jit.code.cache import cache_folder, code_path, compiler, source_stamp
from tenonnx_cpu.jit.vectors.vector import I64, VOID, Builder, Value

Body = Callable[[Builder, Sequence[Value]], Any]
Variants = Iterable[tuple[Any, ...]] | Mapping[tuple[Any, ...], tuple[Any, ...]]

IMAGE = "shared"
"""The name of the code object of a module's shared functions."""

RADIX = 128
NUMBERS = {"i64": types.intp, "i32": types.int32, "i8": types.uint8, "float": types.float32}
"""numba's types of what functions take, by LLVM's names."""

_groups: dict[str, list[Shared]] = {}
_loaded: dict[str, Any] = {}


class Shared:
    """A function without a result; creating it makes it known, ``load`` compiles it.

    Args:
        file: ``__file__`` of the module it belongs to.
        name: Its symbol, of which there is one in the process.
        arguments: Types of its arguments.
        body: Writes it, but for the return at its end.
    """

    def __init__(self, file: str, name: str, arguments: Sequence[ir.Type], body: Body) -> None:
        self.name = name
        self.kind = ir.FunctionType(VOID, list(arguments))
        self.body = body
        _groups.setdefault(file, []).append(self)

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


def load() -> None:
    """Compile what has been created so far, or load it from the disk cache."""
    with global_compiler_lock:
        for file, functions in _groups.items():
            if file in _loaded:
                continue
            make = _code_object if code_object.SUPPORTED else _library
            _loaded[file] = make(file, functions)
            for function in functions:
                llvm.add_symbol(function.name, code_object.address_of(function.name))


def files() -> list[str]:
    """Return the files of modules whose functions have code objects, of those imported so far."""
    return sorted(_groups)


def keep(file: str) -> None:
    """Compile a module's functions into the disk cache, unless they are there."""
    with global_compiler_lock:
        path = code_path(file, IMAGE)
        if not os.path.exists(path):
            _build(path, file, _groups[file])


def promise() -> None:
    """Tell kernels that are compiled in which code objects the functions are, or will be."""
    for file, functions in _groups.items():
        path = code_path(file, IMAGE)
        names = [function.name for function in functions]
        code_object.promise(os.path.basename(path), names)


def _code_object(file: str, functions: Sequence[Shared]) -> dict[str, int]:
    path = code_path(file, IMAGE)
    names = [function.name for function in functions]
    if found := code_object.find(path, names):
        return found
    return _build(path, file, functions)


def _build(path: str, file: str, functions: Sequence[Shared]) -> dict[str, int]:
    names = [function.name for function in functions]
    module = llvm.parse_assembly(str(_module(numba_target.context(), file, functions)))
    building.optimize(module)
    return building.build(module, names, path)


def _module(context: Any, file: str, functions: Sequence[Shared]) -> ir.Module:
    stem = Path(file).stem
    library = context.codegen().create_library(stem)
    module = library.create_ir_module(stem)
    for function in functions:
        function.define(module)
    return module


def _library(file: str, functions: Sequence[Shared]) -> Any:
    """Have numba keep the functions, where no code objects are made."""
    codegen = cpu_target.target_context.codegen()
    compiled = compiler(), codegen.magic_tuple()
    machine = hashlib.sha256(repr(compiled).encode()).hexdigest()
    stem = Path(file).stem
    path = os.path.join(cache_folder(), f"{stem}-{source_stamp(file)[:16]}-{machine[:16]}.library")
    if (kept := library_file.read(path)) is not None:
        library = codegen.unserialize_library(kept)
    else:
        library = codegen.create_library(f"tenonnx.{stem}")
        library.enable_object_caching()
        library.add_ir_module(_module(cpu_target.target_context, file, functions))
        library.finalize()
        building.keep(path, library_file.pack(library.serialize_using_object_code()))
    for function in functions:
        code_object.define(function.name, library.get_pointer_to_function(function.name))
    # The thread pool's threads are in there until the process ends, after Python has let go of it.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    return library
