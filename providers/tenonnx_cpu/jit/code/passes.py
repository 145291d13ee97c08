"""numba's passes over a function, from its bytecode to LLVM's language."""

from __future__ import annotations

from typing import Any

from numba.core import compiler, typed_passes, untyped_passes

from tenonnx_cpu.jit.code.lowering import Lowering

# Numba's passes for what kernels do not have: functions in functions, `with`, `raise`, array
# expressions, `literal_unroll`, references to be given back.
UNUSED = frozenset({
    untyped_passes.WithLifting, untyped_passes.InlineClosureLikes,
    untyped_passes.RewriteDynamicRaises, untyped_passes.MakeFunctionToJitFunction,
    untyped_passes.FindLiterallyCalls, untyped_passes.LiteralUnroll,
    untyped_passes.LiteralPropagationSubPipelinePass,
    typed_passes.InlineOverloads, typed_passes.NopythonRewrites, typed_passes.IRLegalization,
    typed_passes.NoPythonSupportedFeatureValidation, typed_passes.AnnotateTypes,
    typed_passes.DumpParforDiagnostics,
})  # fmt: skip

# Passes in the place of numba's.
OWN = {typed_passes.NativeLowering: Lowering}


class Compiler(compiler.CompilerBase):
    """The compiler of one function of a kernel."""

    def define_pipelines(self) -> list[Any]:
        """Return numba's pipeline, shortened."""
        manager = compiler.PassManager("tenonnx")
        usual = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        for each, description in usual.passes:
            if each not in UNUSED:
                manager.add_pass(OWN.get(each, each), description)
        manager.finalize()
        return [manager]
