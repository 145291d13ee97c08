"""Session options: onnxruntime's names and meanings, and tenonnx's own beside them."""

from __future__ import annotations

import enum
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tenonnx import errors
from tenonnx.errors import InvalidArgument, NotSupported, did_you_mean, page
from tenonnx.interface.config import SESSION_KEYS, check_entry, found_entry, set_attribute
from tenonnx.interface.enums import ExecutionMode, ExecutionOrder
from tenonnx.interface.enums import GraphOptimizationLevel as GraphOptimizationLevel
from tenonnx.operators import OperatorTable

if TYPE_CHECKING:
    from typing import Protocol

    from tenonnx.custom_ops import Function
    from tenonnx.weights.registry import WeightRegistry

    class Plugins(Protocol):
        """A ``tenonnx.PluginSet``, which itself is made of what options are given to."""

        records: list[Any]

        def register(self, plugin: Any, name: str | None = None) -> Any:
            """Add a plug-in."""


Options = TypeVar("Options")


@dataclass
class SessionOptions:
    """The options of a session. Every attribute can be set after construction too.

    Attributes:
        graph_optimization_level: Transforms to run; without any, nodes are not fused either.
        disabled_transforms: Transforms not to run, by name.
        weights: The registry that holds the weights; the process-wide one if ``None``.
        plugins: The plug-ins to work with; the discovered ones if ``None``.
        allowed_roots: Folders (absolute or relative to the current one) outside the model's own
            that external data may come from.
        intra_op_num_threads: Threads inside a kernel, at most as many as there are cores; 0, the
            default, uses all cores for large work and fewer for small.
        logid: Names the session in reports.
        time_limit: Seconds that a run may take, and the loading of a model; ``None`` for any
            number. It is looked at after every step, in every iteration of a loop, and within
            long steps.
        check: Hold what every step of a run makes against its nodes alone on the host: type,
            shape, device and values. The first one that is wrong raises a ``RuntimeException``.
            Instead of ``True``, relative tolerances, or pairs with absolute ones, by nodes' names
            or operators, or patterns of them: ``{"Gelu": 1e-2, "/head/*": (1e-2, 1e-3)}``.
        observers: Installed plug-ins whose observers see the runs, by name; none by default.
            Those that the program registers itself always do.
        enable_profiling: Write a trace of every run; see ``InferenceSession.end_profiling``.
        profile_file_prefix: Where; date and time are added to it.
        optimized_model_filepath: Where to write the model as transforms left it; nowhere if empty.
        trust_compiled_plan: The model is a file of ``tenonnx compile`` that you or somebody you
            trust wrote: the plan in it is used, as code would be.
        operators: Operators for this session alone; see ``operator``.
        inter_op_num_threads, execution_mode, execution_order, enable_cpu_mem_arena,
            enable_mem_pattern, enable_mem_reuse, log_severity_level, log_verbosity_level,
            use_deterministic_compute, use_per_session_threads: Accepted for onnxruntime's sake,
            without effect.
    """

    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    disabled_transforms: Iterable[str] = ()
    weights: WeightRegistry | None = None
    plugins: Plugins | None = None
    allowed_roots: Iterable[str] = ()
    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    time_limit: float | None = None
    check: bool | Mapping[str, float | tuple[float, float]] = False
    observers: Iterable[str] = ()
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = "tenonnx_profile"
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    trust_compiled_plan: bool = False
    operators: OperatorTable = field(default_factory=OperatorTable, repr=False, compare=False)
    _config: dict[str, str] = field(default_factory=dict, repr=False)
    _sizes: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)
    _initializers: dict[str, Any] = field(default_factory=dict, repr=False)
    _files: dict[str, Any] = field(default_factory=dict, repr=False)
    _providers: list[tuple[str, dict[str, str]]] = field(default_factory=list, repr=False)
    _cancelled: bool = field(default=False, repr=False)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dataclass_fields__:
            public = [each.name for each in fields(self) if not each.name.startswith("_")]
            raise AttributeError(
                f"SessionOptions has no option {name!r}{did_you_mean(name, public)}"
            )
        if name in OPTION_TYPES:
            kind, expected = OPTION_TYPES[name]
            try:
                value = kind(value)
            except (TypeError, ValueError):
                message = f"SessionOptions.{name} is {value!r}; expected {expected}"
                raise TypeError(message) from None
        super().__setattr__(name, value)

    def copy(self) -> SessionOptions:
        """Return options that changes of these do not reach."""
        own = {name: getattr(self, name).copy() for name in OWNED}
        return replace(self, **own)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled.

        Raises:
            TypeError: Something of it belongs to this process.
        """
        for name in ("weights", "plugins", "operators", "_initializers", "_files"):
            held = getattr(self, name)
            if held is not None and not (isinstance(held, dict | OperatorTable) and not len(held)):
                raise TypeError(
                    f"SessionOptions with {name.removeprefix('_')} cannot be pickled: they belong "
                    "to this process"
                )
        return dict(vars(self))

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store a configuration entry.

        Warns once of an unknown key; docs/onnxruntime.md lists the known ones.

        Args:
            key: Such as ``session.intra_op.allow_spinning``.
            value: Its value, as a string: ``"1"``.

        Raises:
            InvalidArgument: Key or value are no strings, or the value does not fit the key.
            NotSupported: The entry is refused.
        """
        check_entry(key, value, SESSION_KEYS, "session")
        set_attribute(self, key, value)
        self._config[key] = value

    def entry(self, key: str) -> str | None:
        """Return a stored configuration entry; ``None`` if there is none of that name."""
        return self._config.get(key)

    def get_session_config_entry(self, key: str) -> str:
        """Return a stored configuration entry.

        Raises:
            NotFound: There is none of that name.
        """
        return found_entry(key, self._config, "session")

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the symbolic dimension of a name, in every input that has it.

        Args:
            name: The dimension's name, as ``NodeArg.shape`` has it.
            size: Its size, in elements.
        """
        self._sizes["name", name] = operator.index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the dimensions of a denotation, such as ``DATA_BATCH``."""
        self._sizes["denotation", denotation] = operator.index(size)

    def add_initializer(self, name: str, value: Any) -> None:
        """Give an initializer of the model its value.

        Args:
            name: The initializer's name.
            value: An ``OrtValue`` or array of the initializer's shape and dtype. It is used in
                place, so it must not change while sessions use it. A session raises
                ``NotFound`` if its model has no such initializer.
        """
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Give initializers of the model their values: ``OrtValue``s or arrays, used in place.

        Raises:
            InvalidArgument: There are not as many values as names.
        """
        self._initializers.update(_side_by_side(names=names, values=values))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Use buffers in place of files of external data, without a copy.

        Args:
            names: The files' names, as the model's tensors locate them.
            buffers: Objects with the buffer protocol (``bytes``, arrays, ``mmap``).
            lengths: How many bytes of each buffer are the file's.

        Raises:
            InvalidArgument: There are not as many buffers or lengths as names.
        """
        given = _side_by_side(names=names, buffers=buffers, lengths=lengths)
        for name, buffer, length in given:
            self._files[name] = memoryview(buffer).cast("B")[:length]

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:
        """Add a provider, for sessions that are not told which ones to use.

        Args:
            name: Its name or an alias, such as ``CPUExecutionProvider`` or ``cpu``.
            options: Its options, as strings; ``tenonnx providers --options`` lists them.
        """
        self._providers.append((name, dict(options or {})))

    def add_provider_for_devices(
        self, devices: Sequence[Any], options: Mapping[str, str] | None = None
    ) -> None:
        """Add the provider of devices that ``get_ep_devices`` lists."""
        for device in devices:
            self.add_provider(device.ep_name, {**device.ep_options, **(options or {})})

    def has_providers(self) -> bool:
        """Return whether providers were added."""
        return bool(self._providers)

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """Make sessions that are being built, or will be, raise ``ModelLoadCanceled``.

        Args:
            cancel: Whether to stop them. Any thread may call this.
        """
        self._cancelled = cancel

    def operator(
        self, name: str, *, since: int = 1, outputs: int = 1
    ) -> Callable[[Function], Function]:
        """Make the decorated function an operator of this session; see ``tenonnx.operator``."""
        from tenonnx.custom_ops import add_to

        return add_to(self.operators, name, since=since, outputs=outputs)

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse a shared library; custom operators are Python functions here.

        Raises:
            NoSuchFile: There is no file at the path.
            NotSupported: There is one; the message says how to write the operator.
        """
        if not os.path.exists(path):  # noqa: PTH110
            raise errors.NoSuchFile(f"the library {path} does not exist")
        raise NotSupported(
            f"{path} is a library of custom operators in onnxruntime's C interface, which tenonnx "
            "cannot call",
            hint="write them as Python functions: @tenonnx.operator('my.domain::MyOp'), or as a "
            f"plug-in: see {page('plugins')}",
        )

    def set_provider_selection_policy(self, policy: int) -> None:
        """Refuse a policy other than the default one.

        Raises:
            NotSupported: It is another one.
        """
        if policy != 0:
            raise NotSupported(
                "providers are not chosen by a policy", hint="name them: providers=[...]"
            )

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any]) -> None:
        """Refuse a delegate.

        Raises:
            NotSupported: Always.
        """
        del delegate
        raise NotSupported(
            "providers are not chosen by a delegate", hint="name them: providers=[...]"
        )

    def set_ep_context_data_read_func(self, *arguments: Any, **more: Any) -> None:
        """Refuse data of compiled segments: they are in the model itself.

        Raises:
            NotSupported: Always.
        """
        del arguments, more
        raise NotSupported("compiled segments are in the model itself")

    def clear_ep_context_data_read_func(self) -> None:
        """Do nothing: there never is such a function."""


# Defaults for a session's options.
PROCESS_DEFAULTS: Final = {"intra_op_num_threads": 0}


def effective(options: SessionOptions) -> SessionOptions:
    """Return a copy of options with the process's defaults where they leave the choice open."""
    own = options.copy()
    own.intra_op_num_threads = own.intra_op_num_threads or PROCESS_DEFAULTS["intra_op_num_threads"]
    return own


def _side_by_side(**lists: Sequence[Any]) -> list[tuple[Any, ...]]:
    if len({len(each) for each in lists.values()}) > 1:
        found = " and ".join(f"{len(each)} {name}" for name, each in lists.items())
        raise InvalidArgument(f"expected lists of one length, got {found}")
    return list(zip(*lists.values(), strict=True))


def _flag(value: Any) -> bool:
    if value in (False, True):
        return bool(value)
    raise ValueError


def _seconds(value: Any) -> Any:
    return value if value is None else value + 0.0  # float() would take words, too


def _names(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):  # each of whose letters would be one: "/" is a folder, too
        raise TypeError
    return tuple(value)


def _check_tolerances(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _flag(value)
    pairs = {name: each if isinstance(each, tuple) else (each, 0.0) for name, each in value.items()}
    if not all(isinstance(name, str) and len(each) == 2 for name, each in pairs.items()):
        raise TypeError
    if not all(number >= 0.0 for each in pairs.values() for number in each):
        raise ValueError
    return dict(value) or True


def _member(kind: type[enum.IntEnum]) -> tuple[Callable[[Any], Any], str]:
    return kind, f"one of {', '.join(kind.__members__)}"


FLAG: Final = _flag, "True or False"
INTEGER: Final = operator.index, "an integer"

# The conversion of an option's value to its type, which may refuse it; and the expected values. A
# new option is part of a cached plan's key, unless ``plan_cache.key`` names it as another kind.
OPTION_TYPES: Final[Mapping[str, tuple[Callable[[Any], Any], str]]] = {
    "allowed_roots": (_names, "a list of folders"),
    "check": (_check_tolerances, "True, False, or tolerances by nodes' names or operators"),
    "disabled_transforms": (_names, "a list of names"),
    "enable_cpu_mem_arena": FLAG,
    "enable_mem_pattern": FLAG,
    "enable_mem_reuse": FLAG,
    "enable_profiling": FLAG,
    "execution_mode": _member(ExecutionMode),
    "execution_order": _member(ExecutionOrder),
    "graph_optimization_level": _member(GraphOptimizationLevel),
    "inter_op_num_threads": INTEGER,
    "intra_op_num_threads": INTEGER,
    "log_severity_level": INTEGER,
    "log_verbosity_level": INTEGER,
    "observers": (_names, "a list of names"),
    "time_limit": (_seconds, "a number of seconds, or None"),
    "trust_compiled_plan": FLAG,
    "use_deterministic_compute": FLAG,
    "use_per_session_threads": FLAG,
}

# Fields that a copy of options has for itself.
OWNED: Final = frozenset(
    {"operators", "_config", "_sizes", "_initializers", "_files", "_providers"}
)


def checked(kind: type[Options], given: Any, name: str) -> Options:
    """Return what a caller gives as options; new ones for ``None``.

    Raises:
        InvalidArgument: They are something else.
    """
    if given is None:
        return kind()
    if isinstance(given, kind):
        return given
    raise InvalidArgument(
        f"{name} is {given!r}; expected {kind.__name__}",
        hint="providers go by name: providers=[...]" if isinstance(given, list | str) else None,
    )
