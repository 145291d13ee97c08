"""Writes docs/onnxruntime.md: every name of onnxruntime's Python API, and what it is here.

The names come from the installed onnxruntime; what is said of them, from the tables below.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import tenonnx
from tenonnx.interface import config
from tenonnx.interface.refused import Refused

TARGET = Path(__file__).parents[1] / "docs" / "onnxruntime.md"

INTRODUCTION = """\
# Coming from onnxruntime

Written by `python tools/onnxruntime_table.py`; a test checks that it is up to date.

`import tenonnx as ort` is all there is to change. Programs that import onnxruntime themselves, or
through a library, run unchanged with `python -m tenonnx.as_onnxruntime script.py` (or `-m
module`), and so do the Python processes that they start, unless these ignore the environment
(`python -E`, `-I`, `-S`) or `TENONNX_AS_ONNXRUNTIME` is 0. In a notebook,
`tenonnx.as_onnxruntime.install()` before the library's import does it. Tools that an installed
onnxruntime brings, such as `onnxruntime.quantization`, are found beside it and use tenonnx, too.

What follows is every public name of onnxruntime {version}, and what it is here: the **same**,
**better**, **without effect**, **refused** with an error that says what to do instead, or
**missing**. Names of which nothing is said are the same.

Exceptions have onnxruntime's names and, unlike there, one base, `TenonnxError`; each is also the
builtin one that fits: `InvalidArgument` a `ValueError`, `NoSuchFile` a `FileNotFoundError`,
`NotImplemented` a `NotImplementedError`. Where onnxruntime has several names for one mistake, what
is raised is of all these classes: an operator that nobody knows is `NotImplemented`, `InvalidGraph`
and `Fail`; a cycle or an undefined name `InvalidGraph`, `Fail` and `InvalidArgument`; a node that
fails while it runs `RuntimeException`, `Fail` and `InvalidArgument`, and `InvalidGraph`, too, if
its operator does not take such types.

**Stricter.** Mistakes that onnxruntime passes over are errors, which say the remedy: an argument,
option or provider that does not exist, values for an initializer that the model does not have, an
output's buffer that does not fit. If none of the providers asked for can be used, that is an
error too, where onnxruntime warns and takes the CPU: put `CPUExecutionProvider` last in the list,
as programs for several machines do, and it is taken with a warning. Data files of a model given
as `bytes` are looked for in `SessionOptions.allowed_roots`, not in the current folder. Outputs
that are weights are read-only views of them, and outputs of which one is the other reshaped share
memory; a `.copy()` is yours to write to.

**Looser.** Inputs may be lists, numbers and torch tensors, and of either byte order; strings and
sequences may be arrays. Models of a newer IR version or opset run if their operators do. Types
are not inferred when a model is loaded: those of weights and of the model's inputs must fit
together, but where those of computed values do not, they are promoted as numpy promotes them, and
an output may then be of another type than is declared. What a model leaves open of its outputs is
inferred when `shape` or `type` is read, without the weights; as there, `[]` is also the shape of
what nothing is found of.

Numbers differ in a few places. NaN wins in ReduceMax, ReduceMin, ArgMax, ArgMin and every MaxPool,
where onnxruntime may pass it over. Sums, products and powers of integers wrap around instead of
becoming the largest integer, the least integer divided by -1 is itself, and Mod with `fmod` of
64 bits is exact. Quantized operators round the exact result, halves to even; the softmax of bytes
that onnxruntime makes of DequantizeLinear, Softmax and QuantizeLinear is one level off now and
then (2,550 of 465,708 values; none here). So a static int8 model may differ by 2 to 20 %, and the
difference is onnxruntime's: from its graph in float64, a ViT of two layers is 9.0 % away there,
4.6 % without optimizations, 3.3 % here.
Tanh and Sigmoid never exceed 1, as onnxruntime's do by 2e-7: calibrated on such values, a range
from -1 to 1 has the zero point 128 where it may get 127 there.

Where onnxruntime departs from the specification, or from ONNX's own tests, these are followed. Cast
writes numbers as plain decimals with all their digits. StringSplit without a delimiter cuts at all
white space, not at spaces alone; with one it makes one part of an empty string. StringNormalizer
changes case as Unicode does: ß becomes SS. Of equal keys of a LabelEncoder the last one counts.
Regressors of ai.onnx.ml apply their post transform to a single target, too, and transform 1 of
TreeEnsemble is SOFTMAX, 2 LOGISTIC, where onnxruntime has them the other way round. MaxUnpool with
an `output_shape`, Resize with `align_corners` and a scale that leaves a fraction of an element, and
the scores that Attention returns beside a causal mask are as in the tests. Padding of `SAME_UPPER`
and `SAME_LOWER` counts dilations and is never negative, as where strides are longer than kernels.
A Slice that goes backwards to the largest integer is empty. An LSTM's `clip` holds for its cells,
too, when tanh reads them. RegexFullMatch has all of RE2's syntax but `\\C`, the flag `U` and the
names of scripts. QMoE heeds `normalize_routing_weights`, which onnxruntime's takes for 1.
"""

INTERNAL = "an internal of onnxruntime's package"

NOTES: dict[str, tuple[str, str]] = {
    # name: (what it is here, why or how)
    "InferenceSession": (
        "better",
        "also takes an `onnx.ModelProto` or `onnx_ir.Model`; weights are mapped, and shared by "
        "all sessions; pickles as a recipe; an unknown argument is an error",
    ),
    "InferenceSession.run": ("better", "errors name input, node and operator, and say the remedy"),
    "InferenceSession.run_async": (
        "better",
        "returns a future that coroutines can await and that stops the run when cancelled",
    ),
    "InferenceSession.run_with_iobinding": (
        "better",
        "kernels write into the bound memory; a cache bound as input and output is updated in "
        "place",
    ),
    "InferenceSession.set_providers": ("better", "weights stay where they are"),
    "InferenceSession.get_provider_graph_assignment_info": (
        "better",
        "always recorded; `session.placement` gives the reasons, too",
    ),
    "InferenceSession.enable_fallback": (
        "without effect",
        "what may be fallen back to is what `providers` lists",
    ),
    "InferenceSession.disable_fallback": (
        "without effect",
        "what may be fallen back to is what `providers` lists",
    ),
    "InferenceSession.get_tuning_results": ("without effect", "nothing is tuned ahead"),
    "InferenceSession.set_tuning_results": ("without effect", "nothing is tuned ahead"),
    "InferenceSession.release_captured_graph": ("without effect", "what is recorded goes with it"),
    "InferenceSession.set_ep_dynamic_options": ("refused", "`set_providers` takes new options"),
    "InferenceSession.end_profiling": (
        "better",
        "events name plugin and kernel, too; `tenonnx profile` prints them",
    ),
    "SessionOptions": (
        "better",
        "takes options as arguments; an unknown attribute is an error; pickles",
    ),
    "SessionOptions.add_session_config_entry": (
        "better",
        "warns once of an unknown key, with the one that was probably meant",
    ),
    "SessionOptions.register_custom_ops_library": (
        "refused",
        "`@tenonnx.operator('my.domain::MyOp')` makes an operator of a Python function",
    ),
    "SessionOptions.set_provider_selection_policy": ("refused", "`providers` says who runs"),
    "SessionOptions.set_provider_selection_policy_delegate": (
        "refused",
        "`providers` says who runs",
    ),
    "SessionOptions.set_ep_context_data_read_func": (
        "refused",
        "there are no compiled context models",
    ),
    "SessionOptions.clear_ep_context_data_read_func": (
        "without effect",
        "there are no compiled context models",
    ),
    "SessionOptions.inter_op_num_threads": ("without effect", "nodes run in order"),
    "SessionOptions.execution_mode": ("without effect", "nodes run in order"),
    "SessionOptions.execution_order": ("without effect", "nodes run in the model's order"),
    "SessionOptions.enable_cpu_mem_arena": ("without effect", "there is no arena"),
    "SessionOptions.enable_mem_pattern": ("without effect", "there is no arena"),
    "SessionOptions.enable_mem_reuse": (
        "without effect",
        "memory is always free for the next node after its last use",
    ),
    "SessionOptions.log_verbosity_level": ("without effect", "severity 0 logs all there is"),
    "SessionOptions.log_severity_level": (
        "without effect",
        "Python's `logging` filters the logger `tenonnx`",
    ),
    "SessionOptions.profile_file_prefix": ("same", "`tenonnx_profile` if nothing is said"),
    "SessionOptions.use_deterministic_compute": (
        "without effect",
        "kernels add up in the same order every time",
    ),
    "SessionOptions.use_per_session_threads": (
        "without effect",
        "all sessions share the process's threads",
    ),
    "RunOptions.terminate": ("same", "stops before the next node or iteration, within 50 ms"),
    "RunOptions.log_severity_level": ("without effect", "Python's `logging` filters"),
    "RunOptions.log_verbosity_level": ("without effect", "Python's `logging` filters"),
    "RunOptions.logid": ("without effect", "Python's `logging` filters"),
    "IOBinding.synchronize_inputs": ("without effect", "inputs are read when the session runs"),
    "IOBinding.synchronize_outputs": ("without effect", "outputs are there when a run returns"),
    "SessionIOBinding": ("same", "another name of `IOBinding`"),
    "OrtValue": ("better", "holds bfloat16, float8, int4 and strings; pickles"),
    "OrtEpDevice.create_sync_stream": ("refused", "a run returns when its outputs are there"),
    "SparseTensor.as_blocksparse_view": ("refused", "no sparse tensor is made of blocks"),
    "SparseTensor.to_cuda": ("refused", "sparse tensors stay on the host"),
    "OrtArenaCfg": ("without effect", "there is no arena"),
    "create_and_register_allocator": ("without effect", "there is no arena"),
    "create_and_register_allocator_v2": ("without effect", "there is no arena"),
    "disable_telemetry_events": ("without effect", "there is no telemetry"),
    "enable_telemetry_events": ("without effect", "there is no telemetry"),
    "preload_dlls": ("without effect", "providers load their libraries when they start"),
    "set_default_logger_verbosity": ("without effect", "severity 0 logs all there is"),
    "set_seed": ("same", "draws repeat themselves; they are not onnxruntime's numbers"),
    "get_all_providers": ("better", "lists what is installed, usable or not"),
    "register_execution_provider_library": (
        "better",
        "takes a Python file with a plugin; a shared library is refused",
    ),
    "unregister_execution_provider_library": (
        "refused",
        "sessions can be given plugins of their own instead",
    ),
}
"""What differs, of the names that are there."""

MISSING: dict[str, str] = {
    "capi": "`python -m tenonnx.as_onnxruntime` provides it",
    "contextlib": "a module of Python's",
    "onnxruntime_validation": INTERNAL,
    "import_capi_exception": INTERNAL,
    "package_name": "see `get_build_info`",
    "version": "see `__version__` and `get_version_string`",
    "cuda_version": "providers know; see `tenonnx doctor`",
}
"""Names that are not there, and why."""

OF_INT = frozenset(dir(int)) | {"name", "value"}
"""What enumerations have of their own accord."""


def main() -> None:
    """Writes the document."""
    import onnxruntime

    TARGET.write_text(document(onnxruntime))


def names_of(ort: ModuleType) -> Iterator[str]:
    """Yields every public name of the module, and of its classes as ``Class.member``."""
    for name, found in inspect.getmembers(ort):
        if name.startswith("_") and name != "__version__":
            continue
        if getattr(found, "__name__", "") == f"{ort.__name__}.{name}" and name != "capi":
            continue  # a module of the package's that it does not import itself: others may have
        yield name
        if inspect.isclass(found):
            yield from (f"{name}.{member}" for member in members_of(found))


def members_of(found: type) -> list[str]:
    """Returns a class's members that are not Python's."""
    is_enum = hasattr(found, "__members__")
    return [
        member
        for member in dir(found)
        if (not member.startswith("_") or member.startswith("__dlpack"))
        and not (is_enum and member in OF_INT)
    ]


def is_here(name: str) -> bool:
    """Says whether tenonnx has a name."""
    owner, _, member = name.partition(".")
    found = getattr(tenonnx, owner, None)
    if found is None or not member:
        return found is not None
    slots = getattr(found, "__slots__", ())
    fields = getattr(found, "__dataclass_fields__", {})
    return hasattr(found, member) or member in fields or member in slots


def verdict(name: str) -> tuple[str, str]:
    """Returns what a name is here, and why.

    Raises:
        LookupError: It is missing, and nothing says why.
    """
    if name in NOTES:
        return NOTES[name]
    owner = name.partition(".")[0]
    found = getattr(tenonnx, owner, None)
    if inspect.isclass(found) and issubclass(found, Refused):
        return "refused", found.reason
    if is_here(name):
        return "same", ""
    if name not in MISSING:
        raise LookupError(f"onnxruntime.{name} is missing, and no row says why")
    return "missing", MISSING[name]


def document(ort: ModuleType) -> str:
    """Returns the document's text."""
    version = ".".join(ort.__version__.split(".")[:2])
    names = [name for name in names_of(ort) if "." not in name]
    classes = {name: getattr(ort, name) for name in names if inspect.isclass(getattr(ort, name))}
    enums = {name: found for name, found in classes.items() if hasattr(found, "__members__")}
    parts = [INTRODUCTION.format(version=version)]
    parts += ["\n## Functions and other names\n\n", *listing(n for n in names if n not in classes)]
    for name in sorted(classes.keys() - enums.keys()):
        parts += [f"\n## {name}\n\n", *about_class(name, classes[name])]
    parts += ["\n## Enumerations\n\nThe same:\n\n"]
    parts += [f"- `{name}`: {listed(members_of(found))}\n" for name, found in enums.items()]
    parts += ["\n## Entries of SessionOptions\n\n", *keys(config.SESSION_KEYS)]
    parts += ["\n## Entries of RunOptions\n\n", *keys(config.RUN_KEYS)]
    return "".join(parts)


def about_class(name: str, found: type) -> Iterator[str]:
    """Yields a class's section."""
    kind, why = verdict(name)
    if issubclass(getattr(tenonnx, name), Refused):
        yield f"**refused**: {why}.\n"
        return
    if why:
        yield f"**{kind}**: {why}.\n\n"
    yield from listing(f"{name}.{member}" for member in members_of(found))


def listing(names: Iterable[str]) -> Iterator[str]:
    """Yields a table of the names of which there is something to say, and a line of the others."""
    verdicts = {name.rpartition(".")[2]: verdict(name) for name in names}
    same = [name for name, found in verdicts.items() if found == ("same", "")]
    if len(same) < len(verdicts):
        yield "| name | here | |\n| --- | --- | --- |\n"
        for name, (kind, why) in verdicts.items():
            if name not in same:
                yield f"| `{name}` | {kind} | {why} |\n"
        yield "\n" if same else ""
    if same:
        yield f"The same: {listed(same)}\n"


def listed(names: Iterable[str]) -> str:
    """Returns names as code, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def keys(rows: Mapping[str, Any]) -> Iterator[str]:
    """Yields a table of configuration keys."""
    yield "| key | here | |\n| --- | --- | --- |\n"
    for key, row in sorted(rows.items()):
        yield f"| `{key}` | {row.effect} | {row.reason} |\n"


if __name__ == "__main__":
    main()
