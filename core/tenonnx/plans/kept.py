"""A plan that was kept: the parts that a run needs, and the whole plan on demand."""

from __future__ import annotations

import functools
import marshal
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from tenonnx import errors
from tenonnx.interruption import Stopped, lines, raised_by_handler
from tenonnx.planning.plan import Code, Plan, settled
from tenonnx.provider import Step
from tenonnx.records import NamedTuple

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.interface.signature import Signature
    from tenonnx.later import Later
    from tenonnx.planning.lower import Lowering
    from tenonnx.plans.rewriting import Write
    from tenonnx.provider import Provider


class Parts(NamedTuple):
    """The parts of a session that are kept; providers first: they say which kernels others need.

    Attributes:
        providers: The session's.
        code: What runs, marshalled; and its text.
        filename: The file name in its frames.
        namespace: What its global names stand for.
        signature: The model's inputs and outputs.
        said: Of each output, whether the model says all of its type.
        metadata: What the model says of itself: the fields of ``ModelMetadata``.
        weights: Those that the model refers to, a tuple.
        name: The graph's.
        writes: The outputs that steps can write into buffers.
        counts: How many nodes each provider runs.
        reports: The fields of each transform's report.
    """

    providers: list[Provider]
    code: tuple[bytes, str]
    filename: str
    namespace: dict[str, Any]
    signature: Signature
    said: tuple[bool, ...]
    metadata: tuple[Any, ...]
    weights: Later
    name: str
    writes: tuple[Write, ...]
    counts: dict[str, int]
    reports: tuple[tuple[Any, ...], ...]

    def run(self) -> Code:
        """Returns the function that runs the model."""
        marshalled, source = self.code
        return made(marshal.loads(marshalled), self.namespace, source)


def made(compiled: CodeType, namespace: Mapping[str, Any], source: str) -> Code:
    """Returns code that runs in a namespace of its own."""
    own = dict(namespace)
    exec(compiled, own)
    return Code(own.pop("run"), compiled, own, {}, source)


class KeptPlan(Plan):
    """Runs a model that was not read; whatever else a plan does, the whole one does.

    Args:
        parts: What was kept.
        threads: How many numpy's products may use; ``None`` leaves it to them.
        whole: Compiles the model, once.
    """

    def __init__(self, parts: Parts, threads: int | None, whole: Callable[[], Plan]) -> None:
        self._limit(threads)
        self._whole = whole
        self._parts = parts
        self._filename = parts.filename
        self._reset(parts.run())

    def run_checked(self, inputs: Sequence[Any]) -> list[Any]:
        """Runs as ``run`` does; the thread's limits are looked at after every step."""
        return settled(self._call(self._checking, inputs), inputs)

    @functools.cached_property
    def _checking(self) -> Code:
        from tenonnx.plans.rewriting import checking  # for runs with options

        return self._rewritten(*checking(self._code.source, self._code.namespace))

    def _bound(self) -> tuple[Sequence[Write], Code]:
        from tenonnx.plans.rewriting import writing  # for runs into buffers

        writes = self._parts.writes
        text = writing(self._code.source, self._code.namespace, writes)
        return writes, self._rewritten(*text)

    def _rewritten(self, source: str, namespace: Mapping[str, Any]) -> Code:
        return made(compile(source, self._filename, "exec"), namespace, source)

    def _output_name(self, position: int) -> str:
        return self._parts.signature.outputs[position].name

    def narrowed(self, positions: Sequence[int]) -> Plan:
        """Returns a plan of the model, once it is read, for some of the outputs."""
        return self._whole().narrowed(positions)

    @functools.cached_property
    def _lowering(self) -> Lowering:  # type: ignore[override]  # made when it is asked for
        return self._whole()._lowering

    @functools.cached_property
    def graph(self) -> ir.Graph:  # type: ignore[override]  # made when it is asked for
        """The model's main graph."""
        return self._whole().graph

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:  # type: ignore[override]  # made when it is asked for
        """Every step."""
        return self._whole().steps

    def _explain(self, error: Exception, origin: dict[int, Step | ir.Node]) -> Exception:
        if origin or isinstance(error, Stopped) or raised_by_handler(error):
            return super()._explain(error, origin)
        if not any(code.co_filename == self._filename for code, _ in lines(error)):
            return error
        try:
            whole = self._whole()
        except Exception as why:  # the model may be gone, or another one
            return errors.NodeFailed(
                f"{type(error).__name__}: {error}", hint=f"of which node: {why}"
            )
        part = vars(error).get("step")
        if isinstance(part, Step) and not part.nodes:
            names = [value.name for value in part.outputs]
            same = (s for s in whole.steps if [value.name for value in s.outputs] == names)
            vars(error)["step"] = next(same, None)
        return super()._explain(error, whole._code.origin)
