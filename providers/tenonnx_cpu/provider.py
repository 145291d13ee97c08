"""The CPU provider: the operator library over numpy, and JIT kernels where numpy is slow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tenonnx.by_name import cacheable
from tenonnx.errors import PluginError
from tenonnx.interface.enums import GraphOptimizationLevel
from tenonnx.provider import HOST, Device, KernelState, Segment, Step
from tenonnx.weights.folder import forget_unused
from tenonnx_array.provider import ArrayProvider
from tenonnx_cpu.buffers import COUNTED
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.packages import OWN
from tenonnx_cpu.jit.runtime import (
    ASKING,
    MISSING,
    NUMPY,
    Requested,
    changed,
    has_kernels,
    jit_mode,
)
from tenonnx_cpu.precision import BF16, FAST_PRODUCTS, PRECISIONS, warn_of_precision
from tenonnx_cpu.threading_config import SESSION_THREADS, heed, most_threads

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from tenonnx_cpu.capture.recent import Turns
    from tenonnx_cpu.fuse import Fused
    from tenonnx_cpu.kernel_selection import Site


# Transforms that would copy weights for what kernels do without.
DECLINED_COMPILED = {
    "conv-batchnorm": "factors are applied as the result is stored, and need no other weights",
}

# Transforms that gain nothing where nobody compiles kernels.
DECLINED_PLAIN = {
    "attention": "numpy takes as many passes for the operator as for the nodes it stands for",
}


# Elements of a constant that takes part in arithmetic on shapes.
LARGEST_SHAPE = 256


@cacheable
@dataclass(frozen=True)
class CpuOptions:
    """The provider's settings from a session.

    Attributes:
        precision: ``bf16`` lets products, convolutions and attention round their factors to
            bfloat16, where the processor multiplies those in tiles; sums are float32.
        arena_extend_strategy, use_arena: Accepted for onnxruntime's sake, without effect.

    Raises:
        ValueError: The precision is none of ``PRECISIONS``.
    """

    precision: str = PRECISIONS[0]
    arena_extend_strategy: str = "kNextPowerOfTwo"
    use_arena: bool = True

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision is {self.precision!r}; expected {' or '.join(PRECISIONS)}")


class CPUExecutionProvider(ArrayProvider):
    """The provider of the host, which reads weights where they are mapped."""

    name: ClassVar[str] = "CPUExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("cpu",)
    Options: ClassVar[type | None] = CpuOptions
    device: Device = HOST

    _lacking = ""
    """Why it has no kernels at all, if it has none."""

    @classmethod
    def check(cls) -> str | None:
        """Say that this package is in an archive, where no file of it can be read or mapped."""
        import pathlib

        if not (folder := pathlib.Path(__file__).parent).is_dir():
            return (
                f"{folder} is in an archive, from which processes can map no kernels:"
                " unpack it, or pack the program with shiv or pex, which unpack it"
            )
        return super().check()

    @functools.cached_property
    def threads(self) -> int:
        """The number of threads that a kernel may use: the session's, or that of the cores."""
        most = most_threads()
        asked = self.session_options.intra_op_num_threads
        return min(asked, most) if asked > 0 else most

    @functools.cached_property
    def packs(self) -> bool:
        """Whether a kernel may have a copy made of weights, laid out as suits it."""
        return self.session_options.entry("session.disable_prepacking") != "1"

    @functools.cached_property
    def narrows(self) -> bool:
        """Whether all products may round their factors to bfloat16, as the session wants."""
        asked = self.options is not None and self.options.precision == BF16
        if not asked and self.session_options.entry(FAST_PRODUCTS) != "1":
            return False
        if not multiplies_bfloat16():
            warn_of_precision()
            return False
        return True

    def _narrows(self, node: ir.Node) -> bool:
        """Return whether a node may round its factors: if the session wants it, or the model."""
        from tenonnx.graph import FACTORS_KEY

        if self.narrows:
            return self.packs
        return self.packs and FACTORS_KEY in node.metadata_props and multiplies_bfloat16()

    @functools.cached_property
    def _requested(self) -> Requested:
        """The kernels of its sessions' nodes."""
        return {}

    @functools.cached_property
    def _turns(self) -> Turns:
        """The runs in which its sessions' steps are captured."""
        from tenonnx_cpu.capture.recent import Turns

        return Turns()

    @classmethod
    def warm_up(cls, tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
        """Build the libraries of all kernels: what sessions want is known once there are some."""
        del everything
        from tenonnx_cpu.jit.aot.build import warm_up
        from tenonnx_cpu.lazy_import import import_all

        failed = None
        try:
            import_all()
        except PluginError as error:  # all other kernels are declared
            failed = error
        found = warm_up(tell)
        if failed is not None:
            raise failed
        return found

    @classmethod
    def remarks(cls) -> Iterable[tuple[str, str | None]]:
        """Return which kernels there are."""
        from tenonnx_cpu.jit.remarks import kernels
        from tenonnx_cpu.lazy_import import import_all

        try:
            import_all()
        except PluginError as error:
            return [*kernels(), (str(error.args[0]), error.hint)]
        return kernels()

    @classmethod
    def kept_files(cls) -> Iterable[Path]:
        """Return the libraries of kernels, and what they are linked from."""
        return library.cached_files()

    @classmethod
    def forget_unused(cls) -> Iterable[Path]:
        """Delete kernels of older sources and of other machines."""
        return forget_unused(library.cached_files())

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return a step per node, or for several where they are fused.

        Without graph optimizations none are: observers then see what every node computes.
        """
        SESSION_THREADS.set(self.threads)
        heed(self.session_options)
        if not has_kernels():
            _ = self.narrows  # says that it does not
            self._lacking = "TENONNX_JIT is 0" if jit_mode() == "0" else MISSING
            self._warn_of_missing()
            return super().compile(segment)
        token = ASKING.set(self._requested)
        try:
            return self._compile(segment)
        finally:
            ASKING.reset(token)
            self._warn_of_missing()

    def _compile(self, segment: Segment) -> Sequence[Step]:
        # For those who have kernels.
        from tenonnx.graph.values import value_infos
        from tenonnx.planning.shape_arithmetic import on_shapes
        from tenonnx_cpu.capture.span import alone, captured
        from tenonnx_cpu.fuse import FUSIONS, Scope
        from tenonnx_cpu.lazy_import import import_for

        import_for((node.domain, node.op_type) for node in segment.nodes)
        free = dict.fromkeys(filter(self._is_free, segment.nodes))
        level = self.session_options.graph_optimization_level
        fusible = tuple(free) if level != GraphOptimizationLevel.ORT_DISABLE_ALL else ()
        scope = Scope(
            segment.nodes, fusible, segment.escaping, self.threads, self._step, self.packs,
            self._narrows,
        )  # fmt: skip
        fused = FUSIONS.find(scope)
        asked = on_shapes(filter(_is_inner, filter(scope.has, fusible)), LARGEST_SHAPE)
        scope.taken.update(asked)
        steps = []
        for node in segment.nodes:
            if node in fused:
                steps.append(self._fused_step(fused[node]))
            elif node not in scope.taken:
                steps.append(self._special_step(node) if node in free else self._step(node))
        if asked:
            from tenonnx_cpu.shapes import shape_cache

            steps = shape_cache(asked, steps, self._step)
        turns = self._turns
        escaping = value_infos(segment.escaping)
        return (
            captured(steps, escaping, turns) if fusible else [alone(step, turns) for step in steps]
        )

    def _warn_of_missing(self) -> None:
        lacking = dict.fromkeys(k.package for k in tuple(self._requested) if k.reason == MISSING)
        if self._lacking == MISSING or lacking:
            from tenonnx_cpu.jit.remarks import warn_of_missing

            for name in (OWN.name,) if self._lacking else lacking:
                warn_of_missing("" if name == OWN.name else name)

    @classmethod
    def depends_on(cls) -> tuple[Any, ...]:
        """Return the library of kernels, and how many threads there are."""
        return (
            ("whether there are kernels", has_kernels()),
            ("the library of kernels", library.fingerprint()),
            ("reference counts", COUNTED),
            ("how many threads kernels may have", most_threads()),
        )

    def reopened(self) -> str | None:
        """Ask for the kernels again, and return what is said when steps are compiled."""
        SESSION_THREADS.set(self.threads)
        heed(self.session_options)
        requested = dict(self._requested)
        token = ASKING.set(self._requested)
        try:
            return changed(requested)
        finally:
            ASKING.reset(token)
            self._warn_of_missing()

    def kernels(self) -> Mapping[str, KernelState]:
        """Return the kernels that nodes asked for; without any, one row that says why."""
        if self._lacking:
            return {"all": KernelState(NUMPY, self._lacking)}
        return {str(k): KernelState(k.state, k.reason) for k in tuple(self._requested)}

    def declines(self, transform: str) -> str | None:
        """Return what it does better itself as it compiles nodes, or what gains it nothing."""
        declined = DECLINED_COMPILED if has_kernels() else DECLINED_PLAIN
        return declined.get(transform)

    def _special_step(self, node: ir.Node) -> Step:
        """Return a free node's step, on a kernel of the provider's own if there is one."""
        from tenonnx_cpu.kernel_selection import SPECIALIZATIONS

        step = self._unchecked(node)
        special = SPECIALIZATIONS.get((node.domain, node.op_type))
        call = None if special is None else special(self._site(node), step.call)
        return self._checked(step if call is None else step.called(call), (node,), node.inputs)

    def _site(self, node: ir.Node) -> Site:
        from tenonnx_cpu.kernel_selection import Site

        return Site(node, self.threads, self._narrows(node))

    def _fused_step(self, fused: Fused) -> Step:
        several = len(fused.outputs) > 1
        step = Step(fused.call, fused.inputs, fused.outputs, fused.nodes, multiple=several)
        return self._checked(step, fused.nodes, fused.inputs)

    def _checked(
        self, step: Step, nodes: Iterable[ir.Node], inputs: Sequence[ir.Value | None]
    ) -> Step:
        """Return a step that checks the shapes of its operands: while it is traced, if it is."""
        from tenonnx.graph.shape_checks import Checked, checked
        from tenonnx_cpu.capture.capturable import Capturable

        guarded = checked(step.call, nodes, inputs, self.kernel_of)
        if isinstance(guarded, Checked) and isinstance(step.call, Capturable):
            return step.called(step.call.guarded(guarded.of))
        return step.called(guarded)

    def _is_free(self, node: ir.Node) -> bool:
        """Return whether a node may be computed otherwise than by the kernel it has.

        Not if a plug-in brought that kernel for an operator of the array library, or for one that
        nothing here computes.
        """
        from tenonnx_array import TABLE
        from tenonnx_cpu.fuse import FUSIONS
        from tenonnx_cpu.kernel_selection import SPECIALIZATIONS

        place = (node.domain, node.op_type, node.version or 1)
        if (plain := TABLE.find(*place)) is None:
            return place[:2] in SPECIALIZATIONS or FUSIONS.start_at(place[:2])
        return self.table.find(*place) is plain


def multiplies_bfloat16() -> bool:
    """Return whether there are kernels that multiply bfloat16."""
    from tenonnx_cpu.jit.code.cpu import cpu

    return has_kernels() and cpu().bf16


def _is_inner(node: ir.Node) -> bool:
    """Return whether no output of a graph is made by a node."""
    return not any(value.is_graph_output() for value in node.outputs)
