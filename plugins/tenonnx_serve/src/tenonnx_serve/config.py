"""A model's configuration: Triton's ``config.pbtxt``, completed from the model.

Fields that change how a model is served are followed. Fields that would change its answers, and
that this server does not support, are refused by name. Hints to other runtimes are logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format, text_format  # type: ignore[import-untyped] # no stubs
from tritonclient.grpc import model_config_pb2

from tenonnx import InvalidArgument, NotSupported
from tenonnx_serve.datatypes import CONFIG_TYPES
from tenonnx_serve.requests import quoted
from tenonnx_serve.settings import Batching

log = logging.getLogger("tenonnx.serve")

# A `model_config_pb2.ModelConfig`; protobuf's messages are untyped.
ModelConfig = Any

LARGEST_FILE: Final = 1 << 20

PLATFORMS: Final = ("", "onnxruntime_onnx", "tenonnx_onnx")
BACKENDS: Final = ("", "onnxruntime", "tenonnx")

# Fields that change the meaning of a request.
REFUSED_FIELDS: Final = (
    *("sequence_batching", "ensemble_scheduling", "batch_input", "batch_output"),
    *("model_operations", "model_repository_agents"),
)

# The parameter of a language model's configuration that goes before ``--rows``.
ROWS_PARAMETER: Final = "rows"

MOST_ROWS: Final = 1024

# The optimization level for each of Triton's numbers.
LEVELS_OF_TRITON: Final = {-1: "basic", 1: "extended", 2: "all"}


def read(path: Path) -> ModelConfig:
    """Return the configuration in a file.

    Raises:
        InvalidArgument: The file is not a configuration.
    """
    if path.stat().st_size > LARGEST_FILE:
        raise InvalidArgument(f"{path} has more than {LARGEST_FILE} bytes: it is no configuration")
    try:
        return text_format.Parse(path.read_bytes(), model_config_pb2.ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not a model's configuration: {error}") from None


def empty() -> ModelConfig:
    """Return an empty configuration."""
    return model_config_pb2.ModelConfig()


def from_json(text: str) -> ModelConfig:
    """Return a configuration from a client.

    Raises:
        InvalidArgument: It is not a configuration.
    """
    try:
        return json_format.Parse(text, model_config_pb2.ModelConfig(), max_recursion_depth=20)
    except json_format.ParseError as error:
        raise InvalidArgument(f"not a model's configuration: {error}") from None


def check(config: ModelConfig, name: str) -> None:
    """Refuse a configuration that this server cannot follow.

    Raises:
        InvalidArgument: It contradicts itself or the repository.
        NotSupported: It needs a feature that this server lacks.
    """
    if config.name not in ("", name):
        raise InvalidArgument(f"the configuration names {config.name!r}, its folder is {name!r}")
    if config.platform not in PLATFORMS or config.backend not in BACKENDS:
        said = config.platform or config.backend
        raise NotSupported(f"model {name!r} is for {said!r}; only ONNX models are served")
    asked = [field for field, _ in config.ListFields() if field.name in REFUSED_FIELDS]
    if asked or config.model_transaction_policy.decoupled:
        what = asked[0].name if asked else "model_transaction_policy"
        raise NotSupported(f"model {name!r}: this server does not support {what} in config.pbtxt")
    for tensor in (*config.input, *config.output):
        if tensor.HasField("reshape") or tensor.is_shape_tensor:
            raise NotSupported(
                f"model {name!r}: this server does not support reshape, as for {tensor.name!r}"
            )
    if config.max_batch_size < 0:
        raise InvalidArgument(
            f"model {name!r}: max_batch_size is {config.max_batch_size}; expected 0 or more"
        )
    file = config.default_model_filename
    if file and (Path(file).name != file or file in (".", "..")):
        raise InvalidArgument(f"default_model_filename is {file!r}; expected the name of a file")
    if any(group.kind == group.KIND_GPU for group in config.instance_group):
        log.warning("model %s: KIND_GPU is ignored; use --provider", name)
    if config.optimization.HasField("execution_accelerators"):
        log.warning("model %s: execution_accelerators are ignored; use --provider", name)


def batching_of(config: ModelConfig) -> Batching:
    """Return how a model's requests are joined."""
    if not (config.max_batch_size and config.HasField("dynamic_batching")):
        return Batching()
    dynamic = config.dynamic_batching
    largest = min(config.max_batch_size, max(dynamic.preferred_batch_size, default=1 << 30))
    return Batching(max(1, largest), dynamic.max_queue_delay_microseconds / 1e6)


def at_once_of(config: ModelConfig) -> int:
    """Return how many joined runs there may be at once."""
    counts: list[int] = [group.count for group in config.instance_group]
    return max(1, sum(counts))


def threads_of(config: ModelConfig) -> int:
    """Return how many threads a kernel may use; 0 if the configuration does not say so."""
    key = "intra_op_thread_count"
    said = config.parameters[key].string_value if key in config.parameters else ""
    return int(said) if said.isdigit() else 0


def rows_of(config: ModelConfig) -> int:
    """Return how many texts of a language model share a step; 0 if the configuration does not say.

    Raises:
        InvalidArgument: It is no such number.
    """
    if ROWS_PARAMETER not in config.parameters:
        return 0
    said = config.parameters[ROWS_PARAMETER].string_value
    rows = int(said) if said.isdecimal() and len(said) <= len(str(MOST_ROWS)) else 0
    if not 1 <= rows <= MOST_ROWS:
        raise InvalidArgument(
            f"parameter {ROWS_PARAMETER!r} is {quoted(said)}; expected 1 to {MOST_ROWS}"
        )
    return rows


def versions_of(config: ModelConfig, there: Iterable[int]) -> list[int]:
    """Return the versions to serve, of those that exist.

    Raises:
        InvalidArgument: A version to serve does not exist.
    """
    ordered, policy = sorted(there), config.version_policy
    match policy.WhichOneof("policy_choice"):
        case "all":
            return ordered
        case "specific":
            wanted = sorted(set(policy.specific.versions))
            if missing := set(wanted) - set(ordered):
                raise InvalidArgument(f"version_policy names versions that do not exist: {missing}")
            return wanted
        case "latest":
            return ordered[-max(1, policy.latest.num_versions) :]
    return ordered[-1:]


def as_json(message: Any) -> dict[str, Any]:
    """Return a message as Triton's JSON: every field, and numbers as numbers."""
    return {
        field.name: _field_as_json(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or field.message_type is None or message.HasField(field.name)
    }


def _field_as_json(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {str(key): _told_one(inner, value[key]) for key in value}
    if field.is_repeated:
        return [_told_one(field, item) for item in value]
    return _told_one(field, value)


def _told_one(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_json(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return value


def completed(config: ModelConfig, model: Any, batching: Batching) -> ModelConfig:
    """Return a configuration whose missing fields are taken from the model.

    Args:
        config: The configuration of the file; empty if there is none.
        model: The :class:`~tenonnx_serve.model.Model`.
        batching: How its requests are joined if the configuration does not say so.

    Raises:
        InvalidArgument: It contradicts the model.
    """
    whole = model_config_pb2.ModelConfig()
    whole.CopyFrom(config)
    whole.name, whole.platform, whole.backend = model.name, "tenonnx_onnx", "tenonnx"
    if batching.largest > 1 and not whole.max_batch_size:
        whole.max_batch_size = batching.largest
        dynamic = whole.dynamic_batching
        dynamic.max_queue_delay_microseconds = round(batching.wait * 1e6)
    skip = 1 if whole.max_batch_size else 0
    for listed, specs in ((whole.input, model.takes), (whole.output, model.outputs)):
        for tensor in listed:
            _compare(tensor, specs.get(tensor.name), skip, model.name)
    for listed, specs in ((whole.input, model.inputs), (whole.output, model.outputs)):
        if not listed:
            for spec in specs.values():
                kind = CONFIG_TYPES[spec.datatype]
                listed.add(name=spec.name, data_type=kind, dims=spec.shape[skip:])
    if not whole.HasField("version_policy"):
        whole.version_policy.latest.num_versions = 1
    return whole


def _compare(tensor: Any, spec: Any, skip: int, name: str) -> None:
    """Refuse a tensor of a configuration that contradicts the model's."""
    if spec is None:
        raise InvalidArgument(f"model {name!r} has no input or output {tensor.name!r}")
    if tensor.data_type and tensor.data_type != CONFIG_TYPES[spec.datatype]:
        raise InvalidArgument(
            f"model {name!r}: {tensor.name!r} is {spec.datatype}, its configuration says "
            f"{model_config_pb2.DataType.Name(tensor.data_type)}"
        )
    wanted = spec.shape[skip:]
    same = len(wanted) == len(tensor.dims) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(wanted, tensor.dims, strict=True)
    )
    if spec.ranked and tensor.dims and not same:
        raise InvalidArgument(
            f"model {name!r}: {tensor.name!r} has shape {list(spec.shape)}, its configuration says "
            f"{['batch'] * skip + list(tensor.dims)}"
        )
