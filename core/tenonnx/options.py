"""Session options: onnxruntime's names and meanings, and tenonnx's own beside them."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidArgument

if TYPE_CHECKING:
    from tenonnx.plugins import PluginSet
    from tenonnx.weights import WeightRegistry


class GraphOptimizationLevel(enum.IntEnum):
    """Which graph transforms run: those of the chosen level and of the levels below it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted for onnxruntime's sake; nodes run in order, parallel inside their kernels."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


@dataclass
class SessionOptions:
    """What a session is built with. Every attribute can be set after construction too.

    Attributes:
        graph_optimization_level: Transforms to run.
        disabled_transforms: Transforms not to run, by name.
        weights: The registry that holds the weights; the process-wide one if ``None``.
        plugins: The plugins to work with; the discovered ones if ``None``.
        allowed_roots: Folders outside the model's own that external data may come from.
        intra_op_num_threads: Threads inside a kernel; 0 leaves the choice to the kernels.
        inter_op_num_threads: Accepted for onnxruntime's sake, without effect.
        execution_mode: Accepted for onnxruntime's sake, without effect.
        log_severity_level: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal.
        logid: Names the session in reports.
        enable_cpu_mem_arena: Accepted for onnxruntime's sake, without effect.
        enable_mem_pattern: Accepted for onnxruntime's sake, without effect.
        enable_mem_reuse: Accepted for onnxruntime's sake, without effect.
    """

    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    disabled_transforms: Iterable[str] = ()
    weights: WeightRegistry | None = None
    plugins: PluginSet | None = None
    allowed_roots: Iterable[str] = ()
    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    log_severity_level: int = 2
    logid: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    _config: dict[str, str] = field(default_factory=dict, repr=False)

    def __setattr__(self, name: str, value: Any) -> None:
        known = [f.name for f in fields(self)]
        if name not in known:
            raise AttributeError(
                f"SessionOptions has no option {name!r}{did_you_mean(name, known)}"
            )
        super().__setattr__(name, value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Stores a configuration entry; both must be strings."""
        self._config[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Returns a stored configuration entry.

        Raises:
            InvalidArgument: There is none of that name.
        """
        try:
            return self._config[key]
        except KeyError:
            raise InvalidArgument(
                f"no session configuration entry {key!r}{did_you_mean(key, self._config)}"
            ) from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``"; did you mean 'x'?"`` if a known name is close, else lists the known ones."""
    names = list(known)
    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    if close:
        return f"; did you mean {lowered[close[0]]!r}?"
    return f" (there are: {', '.join(names)})" if names else ""


def make_options(options_class: type | None, given: Any, owner: str) -> Any:
    """Builds a provider's options from a mapping or an instance.

    Strings are converted to the field's type, as onnxruntime's string options are.

    Raises:
        InvalidArgument: An unknown option, a value that does not fit, or one that is missing.
    """
    if options_class is not None and isinstance(given, options_class):
        return given
    given = dict(given or {})
    known = {f.name: f for f in fields(options_class)} if options_class else {}
    for name in given:
        if name not in known:
            raise InvalidArgument(f"{owner} has no option {name!r}{did_you_mean(name, known)}")
    if options_class is None:
        return None
    converted = {
        name: _convert(value, known[name].default, f"{owner} option {name!r}")
        for name, value in given.items()
    }
    try:
        return options_class(**converted)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"the options of {owner} do not fit: {error}") from error


def _convert(value: Any, default: Any, what: str) -> Any:
    if not isinstance(value, str) or not isinstance(default, (bool, int, float)):
        return value
    try:
        if isinstance(default, bool):
            return {"1": True, "true": True, "0": False, "false": False}[value.lower()]
        return type(default)(value)
    except (KeyError, ValueError):
        raise InvalidArgument(
            f"{what} is {value!r}; expected {type(default).__name__}, such as {default!r}"
        ) from None
