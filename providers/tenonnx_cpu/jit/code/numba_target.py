"""numba's target for kernels: LLVM modules that are optimised once, and never made executable here.

numba's own target optimises every function fully before it is linked into its callers, and again
with each of them, and hands all of them to a just-in-time linker. An image needs neither: functions
get the passes that make them small, the whole module of a kernel is optimised when it is complete
(``building``), and only then becomes machine code.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import codegen
from numba.core.cpu import CPUContext
from numba.core.registry import CPUDispatcher, CPUTarget, cpu_target
from numba.core.runtime import rtsys
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_registry

from tenonnx_cpu.jit.code import images

NAME = "tenonnx"


class _Library(codegen.AOTCodeLibrary):
    """What one function compiles to, with all that it calls."""

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        manager.run(self._final_module, builder)

    def optimised(self) -> Any:
        """Returns a module with all of it."""
        module = llvm.parse_bitcode(self.emit_bitcode())
        manager, builder = self._codegen._module_pass_manager()
        manager.run(module, builder)
        return module

    def get_pointer_to_function(self, name: str) -> int:
        """Returns no address: what Python calls is an image's entry."""
        del name
        return 0


class _Codegen(codegen.AOTCPUCodegen):
    """Makes such libraries, for the processor that numba compiles for."""

    _library_class = _Library

    def __init__(self, name: str) -> None:
        super().__init__(name, "host")

    def _customize_tm_features(self) -> str:
        return str(self._get_host_cpu_features())

    def set_env(self, name: str, environment: Any) -> None:
        """Does nothing: kernels use nothing of Python's."""


class _Context(CPUContext):
    """Lowers functions into such libraries."""

    def init(self) -> None:
        # Its library is linked into every function's: numba's own target must have made it.
        rtsys.initialize(cpu_target.target_context)
        super().init()
        self._internal_codegen = _Codegen("tenonnx.kernels")


class _Target(CPUTarget):
    @functools.cached_property
    def _toplevel_target_context(self) -> Any:
        return _Context(self.typing_context, NAME)


class Kernels(CPU):
    """What numba knows the target by: whatever it can compile for CPUs, it can for kernels."""


class _Dispatcher(CPUDispatcher):
    targetdescr = _Target(NAME)


target_registry[NAME] = Kernels
dispatcher_registry[Kernels] = _Dispatcher
jit_registry[Kernels] = njit = functools.partial(
    numba.jit,
    _target=NAME if images.SUPPORTED else "cpu",  # numba calls what no image is made of
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)
"""Decorates a function that kernels consist of; takes numba's options."""


def context() -> Any:
    """Returns what lowers kernels and their entries."""
    return _Dispatcher.targetdescr.target_context
