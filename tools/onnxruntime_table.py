"""Writes docs/onnxruntime.md: every name of onnxruntime's Python API, and its state in tenonnx.

The names come from the installed onnxruntime, the remarks from the tables below.
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

Replace `import onnxruntime as ort` by `import tenonnx as ort`. That is the only change. Programs
and libraries that import onnxruntime themselves run unchanged with
`python -m tenonnx.as_onnxruntime script.py` (or `-m module`). So do their Python subprocesses,
unless these ignore the environment (`python -E`, `-I`, `-S`) or `TENONNX_AS_ONNXRUNTIME` is 0. In a
notebook, call `tenonnx.as_onnxruntime.install()` before you import the library. Tools of an
installed onnxruntime, such as `onnxruntime.quantization`, remain available and use tenonnx too.

The tables below list every public name of onnxruntime {version}. A name is the **same**,
**better**, **without effect**, **refused** with an error that names an alternative, or **missing**.
Names without a remark are the same.

Exceptions have onnxruntime's names and one common base, `TenonnxError`. Each also derives from the
matching builtin exception: `InvalidArgument` from `ValueError`, `NoSuchFile` from
`FileNotFoundError`, `NotImplemented` from `NotImplementedError`. Where onnxruntime raises different
exceptions for the same mistake, tenonnx's exception belongs to all of these classes:

| mistake | classes |
| --- | --- |
| an unknown operator | `NotImplemented`, `InvalidGraph`, `Fail` |
| a cycle, an undefined name | `InvalidGraph`, `Fail`, `InvalidArgument` |
| a node that fails in a run | `RuntimeException`, `Fail`, `InvalidArgument` |
| a node whose operator does not take its types | the same, and `InvalidGraph` |

**Stricter.** These mistakes, which onnxruntime ignores, are errors with a remedy: an unknown
argument, option or provider; values for an initializer that the model lacks; a buffer that does not
fit its output. It is also an error if no requested provider can be used, where onnxruntime warns
and uses the CPU. Put `CPUExecutionProvider` last in the list, as programs for several machines do,
to get the CPU with a warning. Data files of a model from `bytes` must be in
`SessionOptions.allowed_roots`, not in the current folder. Outputs that are weights are read-only
views of them. If one output is a reshape of another, the two share memory. Make a `.copy()` to
write to them.

**Looser.** Inputs may be lists, numbers and torch tensors, in either byte order; strings and
sequences may be arrays. Models with a newer IR version or opset run if their operators are
supported. A type that contradicts the operator that makes the value is an error, as in onnxruntime;
so are operands of two types where an operator takes one. Other operators may take more types than
the specification allows. Types and shapes that the model does not declare for its outputs are
inferred when `shape` or `type` is read, without the weights. As in onnxruntime, an unknown shape is
also `[]`.

Numbers differ in a few places:

- NaN counts as the next table says; onnxruntime ignores it where the last column says so.
- Sums, products and powers of integers wrap around instead of saturating, the least integer divided
  by -1 is itself, and Mod with `fmod` of 64 bits is exact.
- Quantized operators round the exact result, halves to even. onnxruntime fuses DequantizeLinear,
  Softmax and QuantizeLinear; its result is sometimes one level off (2,550 of 465,708 values; none
  in tenonnx). A static int8 model may therefore differ by 2 to 20 %. The error is onnxruntime's:
  compared with the graph in float64, a ViT of two layers differs by 9.0 % in onnxruntime, 4.6 %
  there without optimizations, and 3.3 % in tenonnx.
- Chains of elementwise operators in 16 bits are computed in float32 and rounded once, as in
  onnxruntime. Without optimizations every node rounds, which onnxruntime does not do either.
- A product by quantized blocks may be scaled after its sum. It is finite then, where a scale
  carries single weights beyond float32's range, and the nodes give NaN.
- Means are summed in float64: they are finite where onnxruntime's sum leaves float32's range. Other
  sums that leave it on their way may be infinite, NaN or finite, by the order of their terms.
- Where a stride does not divide the kernel of a ConvTranspose, an infinite or NaN element makes NaN
  of up to `stride - 1` more places along that axis, since shorter phases are padded with zeros.
- Tanh and Sigmoid never exceed 1, where onnxruntime's do by 2e-7. If a range from -1 to 1 is
  calibrated on such values, its zero point is 128 in tenonnx and may be 127 in onnxruntime.

| NaN | in | as | onnxruntime |
| --- | --- | --- | --- |
| is the greatest | TopK | `numpy.sort` | the same |
| is both extremes | ArgMax, ArgMin, Hardmax, ReduceMax, ReduceMin | `numpy.max` | ignores it |
| is both extremes | Max, Min | `numpy.maximum` | the same |
| is both extremes | Scatter with `max` or `min` | `numpy.maximum` | keeps a number |
| is the greatest | MaxPool, GlobalMaxPool, MaxRoiPool, RoiAlign | `torch.max_pool2d` | ignores it |
| stays | Relu and other activations, Sign, Clip | `numpy.clip` | ignores a bound |
| is in no order | Equal, Greater, Shrink, ThresholdedRelu, NonMaxSuppression | IEEE | the same |
| is the least | QuantizeLinear and other roundings to integers | `maxps` of x86 | the same |
| has no part | the range of DynamicQuantizeLinear | | the same, but by its place in memory |
| is not zero | NonZero, Cast to bool | IEEE | the same |
| is one, and the last | Unique | `numpy.unique` | equals any number |

Where onnxruntime differs from the specification or from ONNX's own tests, tenonnx follows these:

- Cast writes numbers as plain decimals with all their digits.
- StringSplit without a delimiter splits at all white space, not at spaces alone; with a delimiter
  an empty string has one part. StringNormalizer changes case as Unicode does: ß becomes SS.
- The last one of equal keys of a LabelEncoder counts.
- TreeEnsembleClassifier's class is the one of the greatest sum of votes. If both of two classes
  have votes, onnxruntime's label is 1 where the second's sum is positive, else 0, whatever the
  labels are; of more, a class without a vote in a row cannot win there. With two base values,
  onnxruntime drops the votes of a class that alone has any. A single class is each row's, and its
  score is transformed; onnxruntime's label is then 1 or 0 by the sum's sign, the score is not
  transformed, and a label of text ends the process.
- Regressors of ai.onnx.ml apply their post transform to a single target too. Transform 1 of
  TreeEnsemble is SOFTMAX and 2 is LOGISTIC; onnxruntime swaps them.
- Attention's score output with a causal mask is as in the tests.
- Padding of `SAME_UPPER` and `SAME_LOWER` includes dilations and is never negative, even if strides
  are longer than kernels. `VALID` pools whole windows alone, with `ceil_mode` as well; onnxruntime
  and ONNX's shape inference then round up.
- A Slice that goes backwards to the largest integer is empty.
- An LSTM's `clip` also applies to its cells when tanh reads them.
- RegexFullMatch and Tokenizer match simple patterns by Python's `re`, with RE2's answers. All
  others need google-re2 (`pip install "tenonnx[re2]"`) and are refused without it.
- QMoE uses `normalize_routing_weights`; onnxruntime always assumes 1.
"""

INTERNAL = "an internal of onnxruntime's package"

# Existing names that differ: their state and the reason.
NOTES: dict[str, tuple[str, str]] = {
    # name: (its state, why or how)
    "InferenceSession": (
        "better",
        "also takes an `onnx.ModelProto` or `onnx_ir.Model`; weights are mapped, and shared by "
        "all sessions; pickles as a recipe; an unknown argument is an error",
    ),
    "InferenceSession.run": ("better", "errors name input, node and operator, and a remedy"),
    "InferenceSession.run_async": (
        "better",
        "returns a future that coroutines can await; cancelling it stops the run",
    ),
    "InferenceSession.run_with_iobinding": (
        "better",
        "kernels write into the bound memory; a cache bound as input and output is updated in "
        "place",
    ),
    "InferenceSession.run_with_ort_values": (
        "differs",
        "outputs that are made on the device of an input stay there",
    ),
    "InferenceSession.set_providers": ("better", "weights are not copied"),
    "InferenceSession.get_provider_graph_assignment_info": (
        "better",
        "always available; `session.placement` has the reasons, too",
    ),
    "InferenceSession.enable_fallback": (
        "without effect",
        "the fallbacks are the providers in `providers`",
    ),
    "InferenceSession.disable_fallback": (
        "without effect",
        "the fallbacks are the providers in `providers`",
    ),
    "InferenceSession.get_tuning_results": ("without effect", "nothing is tuned ahead"),
    "InferenceSession.set_tuning_results": ("without effect", "nothing is tuned ahead"),
    "InferenceSession.release_captured_graph": (
        "without effect",
        "captures are released with the session",
    ),
    "InferenceSession.set_ep_dynamic_options": ("refused", "`set_providers` takes new options"),
    "InferenceSession.end_profiling": (
        "better",
        "events name plug-in and kernel, too; `tenonnx profile` prints them",
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
    "SessionOptions.set_provider_selection_policy": ("refused", "use `providers`"),
    "SessionOptions.set_provider_selection_policy_delegate": (
        "refused",
        "use `providers`",
    ),
    "SessionOptions.set_ep_context_data_read_func": (
        "refused",
        "compiled segments are in the model itself",
    ),
    "SessionOptions.clear_ep_context_data_read_func": (
        "without effect",
        "compiled segments are in the model itself",
    ),
    "SessionOptions.inter_op_num_threads": ("without effect", "nodes run in order"),
    "SessionOptions.execution_mode": ("without effect", "nodes run in order"),
    "SessionOptions.execution_order": ("without effect", "nodes run in the model's order"),
    "SessionOptions.enable_cpu_mem_arena": ("without effect", "there is no arena"),
    "SessionOptions.enable_mem_pattern": ("without effect", "there is no arena"),
    "SessionOptions.enable_mem_reuse": (
        "without effect",
        "memory is always free after its last use",
    ),
    "SessionOptions.log_verbosity_level": ("without effect", "severity 0 logs everything"),
    "SessionOptions.log_severity_level": (
        "without effect",
        "Python's `logging` filters the logger `tenonnx`",
    ),
    "SessionOptions.profile_file_prefix": ("same", "`tenonnx_profile` by default"),
    "SessionOptions.use_deterministic_compute": (
        "without effect",
        "kernels add up in the same order every time",
    ),
    "SessionOptions.use_per_session_threads": (
        "without effect",
        "all sessions share the process's threads",
    ),
    "RunOptions.terminate": (
        "same",
        "stops before the next node or iteration, and within a kernel; not within one operation of "
        "numpy",
    ),
    "RunOptions.log_severity_level": ("without effect", "Python's `logging` filters"),
    "RunOptions.log_verbosity_level": ("without effect", "Python's `logging` filters"),
    "RunOptions.logid": ("without effect", "Python's `logging` filters"),
    "IOBinding.synchronize_inputs": ("without effect", "inputs are read when the session runs"),
    "IOBinding.synchronize_outputs": ("without effect", "outputs are complete when a run returns"),
    "SessionIOBinding": ("same", "another name of `IOBinding`"),
    "OrtValue": ("better", "holds bfloat16, float8, int4 and strings; pickles"),
    "OrtEpDevice.create_sync_stream": ("refused", "a run returns when its outputs are complete"),
    "SparseTensor.as_blocksparse_view": ("refused", "there are no block-sparse tensors"),
    "SparseTensor.to_cuda": ("refused", "sparse tensors stay on the host"),
    "OrtArenaCfg": ("without effect", "there is no arena"),
    "create_and_register_allocator": ("without effect", "there is no arena"),
    "create_and_register_allocator_v2": ("without effect", "there is no arena"),
    "disable_telemetry_events": ("without effect", "there is no telemetry"),
    "enable_telemetry_events": ("without effect", "there is no telemetry"),
    "preload_dlls": ("without effect", "providers load their libraries when they start"),
    "set_default_logger_verbosity": ("without effect", "severity 0 logs everything"),
    "set_seed": ("same", "draws repeat; their numbers are not onnxruntime's"),
    "get_all_providers": ("better", "lists what is installed, usable or not"),
    "register_execution_provider_library": (
        "better",
        "takes a Python file with a plug-in; a shared library is refused",
    ),
    "unregister_execution_provider_library": (
        "refused",
        "give a session its own plug-ins instead",
    ),
}

# Missing names, and why.
MISSING: dict[str, str] = {
    "capi": "`python -m tenonnx.as_onnxruntime` provides it",
    "contextlib": "a module of Python's",
    "onnxruntime_validation": INTERNAL,
    "import_capi_exception": INTERNAL,
    "package_name": "see `get_build_info`",
    "version": "see `__version__` and `get_version_string`",
    "cuda_version": "see `tenonnx doctor`",
}

# Attributes that all enumerations have.
OF_INT = frozenset(dir(int)) | {"name", "value"}


def main() -> None:
    """Write the document."""
    import onnxruntime

    TARGET.write_text(document(onnxruntime))


def names_of(ort: ModuleType) -> Iterator[str]:
    """Yield every public name of the module, and of its classes as ``Class.member``."""
    for name, found in inspect.getmembers(ort):
        if name.startswith("_") and name != "__version__":
            continue
        if getattr(found, "__name__", "") == f"{ort.__name__}.{name}" and name != "capi":
            continue  # a module of the package's that it does not import itself: others may have
        yield name
        if inspect.isclass(found):
            yield from (f"{name}.{member}" for member in members_of(found))


def members_of(found: type) -> list[str]:
    """Return a class's members that are not Python's."""
    is_enum = hasattr(found, "__members__")
    return [
        member
        for member in dir(found)
        if (not member.startswith("_") or member.startswith("__dlpack"))
        and not (is_enum and member in OF_INT)
    ]


def is_here(name: str) -> bool:
    """Return whether tenonnx has a name."""
    owner, _, member = name.partition(".")
    found = getattr(tenonnx, owner, None)
    if found is None or not member:
        return found is not None
    slots = getattr(found, "__slots__", ())
    fields = getattr(found, "__dataclass_fields__", {})
    return hasattr(found, member) or member in fields or member in slots


def verdict(name: str) -> tuple[str, str]:
    """Return the state of a name, and why.

    Raises:
        LookupError: It is missing, without a reason in the table.
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
    """Return the document's text."""
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
    """Yield a class's section."""
    kind, why = verdict(name)
    if issubclass(getattr(tenonnx, name), Refused):
        yield f"**refused**: {why}.\n"
        return
    if why:
        yield f"**{kind}**: {why}.\n\n"
    yield from listing(f"{name}.{member}" for member in members_of(found))


def listing(names: Iterable[str]) -> Iterator[str]:
    """Yield a table of the names with remarks, and a line of the others."""
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
    """Return names as code, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def keys(rows: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table of configuration keys."""
    yield "| key | here | |\n| --- | --- | --- |\n"
    for key, row in sorted(rows.items()):
        yield f"| `{key}` | {row.effect} | {row.reason} |\n"


if __name__ == "__main__":
    main()
