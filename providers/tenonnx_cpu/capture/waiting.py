"""Steps while there is no machine code yet that replays them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenonnx_cpu.capture import capturable

if TYPE_CHECKING:
    from tenonnx.step import Step


class Waiting:
    """Calls steps without captures until machine code is there that replays them."""

    __slots__ = ("__wrapped__", "_call", "_plain", "_tracer")

    def __init__(
        self, tracer: Callable[..., Any], plain: Callable[..., Any], wrapped: Callable[..., Any]
    ) -> None:
        self.__wrapped__ = wrapped
        self._tracer, self._plain = tracer, plain
        self._call: Callable[..., Any] | None = None

    @property
    def single_steps(self) -> tuple[Step, ...]:
        """The tracer's."""
        return getattr(self._tracer, "single_steps", ())

    def __call__(self, *inputs: Any) -> Any:
        """Return the results."""
        if self._call is None:
            if capturable.REPLAY.run is None:
                return self._plain(*inputs)
            self._call = capturable.attach(self._tracer, self._plain, self.__wrapped__)
        return self._call(*inputs)
