"""A plan that was kept: what a run needs of it, and the whole of it when more is asked."""

from __future__ import annotations

import functools
import marshal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.errors import NodeFailed
from tenonnx.interruption import Stopped, lines, raised_by_handler
from tenonnx.planning.codegen import Code
from tenonnx.planning.plan import Plan
from tenonnx.provider import Step

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.interface.signature import Signature
    from tenonnx.planning.lower import Lowering
    from tenonnx.provider import Provider
    from tenonnx.weights.weight import Weight


class Parts(NamedTuple):
    """What is kept of a session.

    Attributes:
        code: What runs, marshalled; and its text.
        filename: What its frames say that they are of.
        namespace: What its global names stand for.
        signature: The model's inputs and outputs.
        said: Of each output, whether the model says all of its type.
        metadata: What the model says of itself: the fields of ``ModelMetadata``.
        providers: The session's.
        weights: Those that the model refers to.
        name: The graph's.
    """

    code: tuple[bytes, str]
    filename: str
    namespace: dict[str, Any]
    signature: Signature
    said: tuple[bool, ...]
    metadata: tuple[Any, ...]
    providers: list[Provider]
    weights: tuple[Weight, ...]
    name: str

    def run(self) -> Code:
        """Returns the function that runs the model."""
        marshalled, source = self.code
        compiled, namespace = marshal.loads(marshalled), dict(self.namespace)
        exec(compiled, namespace)
        return Code(namespace.pop("run"), compiled, namespace, {}, source)


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
        self._filename = parts.filename
        self._reset(parts.run())

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
            return NodeFailed(f"{type(error).__name__}: {error}", hint=f"of which node: {why}")
        part = vars(error).get("step")
        if isinstance(part, Step) and not part.nodes:
            names = [value.name for value in part.outputs]
            same = (s for s in whole.steps if [value.name for value in s.outputs] == names)
            vars(error)["step"] = next(same, None)
        return super()._explain(error, whole._code.origin)
