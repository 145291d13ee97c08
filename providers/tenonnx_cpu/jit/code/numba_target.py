"""numba's target for kernels: LLVM modules that are optimized once, and never made executable here.

numba's own target optimizes every function fully before it is linked into its callers, and again
with each of them, and hands all of them to a just-in-time linker. An object file needs neither: the
whole module of a kernel is optimized when it is complete (``modules``, ``building``), and only then
becomes machine code.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import codegen, fastmathpass, targetconfig, typing
from numba.core.cpu import CPUContext
from numba.core.registry import CPUDispatcher, CPUTarget, cpu_target
from numba.core.runtime import rtsys
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_registry

from tenonnx_cpu.jit.code.cpu import KINDS, compiled_architecture, target
from tenonnx_cpu.jit.code.lowering import Uncounted
from tenonnx_cpu.jit.code.modules import CodeModules
from tenonnx_cpu.jit.code.passes import Compiler

NAME = "tenonnx"

TRIPLE = "{}-unknown-linux-gnu"

# LLVM avoids vectors of 512 bits for the level, since they slow the first processors of it, which
# have no such instructions.
VBMI, WIDE = "avx512vbmi", ",-prefer-256-bit"


class _Codegen(codegen.AOTCPUCodegen):
    """The maker of such libraries, for the processor that kernels are compiled for."""

    _library_class = CodeModules

    def _init(self, llvm_module: Any) -> None:
        del llvm_module
        self._tm = self.machine()
        self._target_data = self._tm.target_data
        self._data_layout = str(self._target_data)
        self._loopvect, self._opt_level = False, 0

    def machine(self, **options: Any) -> Any:
        """Return what writes position-independent code for that processor."""
        triple, name, features = self.magic_tuple()
        return llvm.Target.from_triple(triple).create_target_machine(
            cpu=name, features=features, reloc="pic", codemodel="small", **options
        )

    def _create_empty_module(self, name: str) -> Any:
        module = super()._create_empty_module(name)
        module.triple = self.magic_tuple()[0]
        return module

    def magic_tuple(self) -> tuple[str, str, str]:
        """Return LLVM's names of the system and the processor, and of what that has besides."""
        if (chosen := target()) is None:
            raise RuntimeError(f"kernels are compiled for none of this processor's kind: {KINDS}")
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        more = WIDE if VBMI in chosen.flags else ""
        triple = TRIPLE.format(compiled_architecture())
        return triple, chosen.level.name, chosen.features + more

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: kernels use nothing of Python's."""


class _Typing(typing.Context):
    """Types calls and attributes, each combination of types once in a process.

    numba goes through all definitions of an operator for every use. What a definition in Python is
    compiled to depends on the caller's arithmetic, and numba keeps by types alone, for all targets,
    which one was typed last: a use that is known says its own again.
    """

    def init(self) -> None:
        self._calls: dict[Any, Any] = {}
        self._found: dict[Any, Any] = {}

    def load_additional_registries(self) -> None:
        if not self._registries:
            super().load_additional_registries()

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        if not isinstance(func, types.Callable):
            return super().resolve_function_type(func, args, kws)
        flags = targetconfig.ConfigStack.top_or_none()
        fast = frozenset(flags.fastmath.flags) if flags else None
        key = func, tuple(args), tuple(kws.items()), fast
        if (known := self._calls.get(key)) is None:
            signature = super().resolve_function_type(func, args, kws)
            if signature is None:
                return None
            known = self._calls[key] = signature, func.get_impl_key(signature)
        signature, definition = known
        if isinstance(func, types.BaseFunction):
            func._impl_keys[signature.args] = definition
        return signature

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        if (known := self._found.get((typ, attr))) is None:
            known = self._found[typ, attr] = super().resolve_getattr(typ, attr)
        return known


class _Context(CPUContext):
    """Lowers functions into such libraries."""

    def init(self) -> None:
        # Of numba's runtime there is one in the process: its own target must have made it.
        rtsys.initialize(cpu_target.target_context)
        super().init()
        self._internal_codegen = _Codegen("tenonnx.kernels")

    def load_additional_registries(self) -> None:
        if not self._registries:
            super().load_additional_registries()
        for registry in tuple(self._registries):
            self.install_registry(registry)  # an intrinsic that is typed adds to one of them

    @functools.cached_property
    def nrt(self) -> Any:
        return Uncounted(self, self.enable_nrt)

    def post_lowering(self, mod: Any, library: Any) -> None:
        """Make arithmetic as fast as is asked for."""
        del library  # into which numba links its runtime
        if self.fastmath:
            fastmathpass.rewrite_module(mod, self.fastmath)


class _Target(CPUTarget):
    @functools.cached_property
    def _toplevel_typing_context(self) -> Any:
        return _Typing()

    @functools.cached_property
    def _toplevel_target_context(self) -> Any:
        return _Context(self.typing_context, NAME)


class Kernels(CPU):
    """numba's name of the target: it compiles for kernels whatever it compiles for CPUs."""


class _Dispatcher(CPUDispatcher):
    targetdescr = _Target(NAME)


target_registry[NAME] = Kernels
dispatcher_registry[Kernels] = _Dispatcher
# Decorates a function that is part of kernels; takes numba's options.
jit_registry[Kernels] = njit = functools.partial(
    numba.jit,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
    _target=NAME,
    pipeline_class=Compiler,
)


def context() -> Any:
    """Return what lowers kernels and their entries."""
    return _Dispatcher.targetdescr.target_context
