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
from numba.core import codegen, fastmathpass
from numba.core.cpu import CPUContext
from numba.core.registry import CPUDispatcher, CPUTarget, cpu_target
from numba.core.runtime import nrtdynmod, rtsys
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_registry

from tenonnx_cpu.jit.code import images
from tenonnx_cpu.jit.code.cpu import compiled_architecture, target

NAME = "tenonnx"

TRIPLE = "{}-unknown-linux-gnu"

VBMI, WIDE = "avx512vbmi", ",-prefer-256-bit"
"""LLVM avoids vectors of 512 bits for the level, since they slow the first processors of it, which
have no such instructions."""


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
    """Makes such libraries, for the processor that kernels are compiled for."""

    _library_class = _Library

    def _init(self, llvm_module: Any) -> None:
        del llvm_module
        self._tm = self.machine()
        self._target_data = self._tm.target_data
        self._data_layout = str(self._target_data)
        self._loopvect, self._opt_level = False, 0

    def machine(self, **options: Any) -> Any:
        """Returns what writes position-independent code for that processor."""
        triple, name, features = self.magic_tuple()
        return llvm.Target.from_triple(triple).create_target_machine(
            cpu=name, features=features, reloc="pic", codemodel="small", **options
        )

    def _create_empty_module(self, name: str) -> Any:
        module = super()._create_empty_module(name)
        module.triple = self.magic_tuple()[0]
        return module

    def magic_tuple(self) -> tuple[str, str, str]:
        """Returns LLVM's names of the system and the processor, and of what that has besides."""
        if (chosen := target()) is not None:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            triple = TRIPLE.format(compiled_architecture())
            return (
                triple,
                chosen.level.name,
                chosen.features + (WIDE if VBMI in chosen.flags else ""),
            )
        own = self._get_host_cpu_name(), self._get_host_cpu_features()
        return (llvm.get_process_triple(), *own)

    def set_env(self, name: str, environment: Any) -> None:
        """Does nothing: kernels use nothing of Python's."""


class _Context(CPUContext):
    """Lowers functions into such libraries."""

    def init(self) -> None:
        # numba's own target must have made what it links into every function of its own.
        rtsys.initialize(cpu_target.target_context)
        super().init()
        self._internal_codegen = _Codegen("tenonnx.kernels")

    @functools.cached_property
    def _counting(self) -> Any:
        """What counts references, for the processor that kernels are compiled for."""
        return nrtdynmod.compile_nrt_functions(self)

    def post_lowering(self, mod: Any, library: Any) -> None:
        """Makes arithmetic as fast as is asked for, and links what every module needs."""
        if self.fastmath:
            fastmathpass.rewrite_module(mod, self.fastmath)
        library.add_linking_library(self._counting)


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
