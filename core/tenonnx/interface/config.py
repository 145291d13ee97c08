"""Configuration entries of sessions and runs: every key of onnxruntime and its effect here."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Literal, NamedTuple

from tenonnx import errors
from tenonnx.errors import InvalidArgument, NotSupported, did_you_mean

log = logging.getLogger("tenonnx")

Effect = Literal["same", "better", "without effect", "refused"]


class ConfigKey(NamedTuple):
    """A key's effect, and the reason why it is better or without effect."""

    effect: Effect
    reason: str


_SELF_SIZED = ConfigKey("without effect", "kernels share the process's own threads")
_SHARED = ConfigKey("same", "all sessions share the threads: the last session that sets it counts")
_NO_ARENA = ConfigKey("without effect", "there is no arena: memory is freed at its last use")
_PACKED_ONCE = ConfigKey("better", "packed weights are kept in files that processes share")
_MAPPED = ConfigKey("better", "weights of .ort files are always used in place")
_OWN_FUSIONS = ConfigKey("without effect", "it tunes a rewrite of onnxruntime's own")
_ITS_KERNELS = ConfigKey("without effect", "it tunes kernels of onnxruntime's own")
_NO_COMPILING = ConfigKey("refused", "a session that is made runs; tenonnx compile makes none")
_NO_MOE_STATISTICS = ConfigKey("without effect", "profiling shows the time of every node")
_WEIGHTLESS = ConfigKey("better", "no provider ever gets a copy of the weights")
_MAPPED_DATA = ConfigKey("better", "external data is mapped, and read when it is first used")
_NO_OFFLOAD = ConfigKey("without effect", "experts' weights are mapped from their file")
_AS_ATTRIBUTE = ConfigKey("same", "sets the attribute of that name")

# Entries with the same effect as an attribute of the options.
ENTRY_ATTRIBUTES: dict[str, str] = {
    "session.enable_cpu_mem_arena": "enable_cpu_mem_arena",
    "session.enable_mem_pattern": "enable_mem_pattern",
    "session.enable_profiling": "enable_profiling",
    "session.execution_mode": "execution_mode",
    "session.graph_optimization_level": "graph_optimization_level",
    "session.inter_op_num_threads": "inter_op_num_threads",
    "session.intra_op_num_threads": "intra_op_num_threads",
    "session.log_id": "logid",
    "session.log_severity_level": "log_severity_level",
    "session.log_verbosity_level": "log_verbosity_level",
    "session.optimized_model_filepath": "optimized_model_filepath",
    "session.use_deterministic_compute": "use_deterministic_compute",
    "session.use_per_session_threads": "use_per_session_threads",
}

# Entries of ``session.external_data_loader``.
DATA_LOADER = ("chunk_bytes", "min_size_bytes", "pinned_memory_bytes", "threads")
# Entries of ``session.moe.offload``.
OFFLOAD = (
    "allow_file_backing", "async_max_tokens", "budget_group", "cpu_execution", "cpu_threads",
    "device_expert_bytes", "device_working_bytes", "gpu_device_mem_limit", "host_expert_bytes",
    "host_working_bytes", "min_expert_weight", "mode", "node_overrides", "pinned_bytes",
    "placement", "popularity_file", "prefill_wave_experts", "reserve_device_bytes",
    "skip_tail_cold_only", "skip_zero_cold_doorbell", "source_root",
    "tail_substitution_min_rank",
)  # fmt: skip

CACHES_IN_PLACE = "tenonnx.caches_in_place"
DISABLED = "optimization.disable_specified_optimizers"
LAST_ROW = "tenonnx.last_row"
# Entries of tenonnx's own, for language models.
ROW_MATRICES = "tenonnx.row_matrices"
NO_CPU_FALLBACK = "session.disable_cpu_ep_fallback"
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
EXPANSION = "session.function_expansion_node_limit"
SAVED_DATA = "session.optimized_model_external_initializers_file_name"
SAVED_DATA_THRESHOLD = "session.optimized_model_external_initializers_min_size_in_bytes"
SAVED_FORMAT = "session.save_model_format"
CONTEXT = "ep.context_enable"
CONTEXT_FILE = "ep.context_file_path"

# The effects of entries of session options.
SESSION_KEYS: dict[str, ConfigKey] = {
    **dict.fromkeys(ENTRY_ATTRIBUTES, _AS_ATTRIBUTE),
    DISABLED: ConfigKey("same", "names of transforms, separated by semicolons"),
    NO_CPU_FALLBACK: ConfigKey("same", "a node on the CPU provider is an error"),
    DATA_FOLDER: ConfigKey("same", "external data may come from that folder"),
    SAVED_DATA: ConfigKey("same", "with optimized_model_filepath"),
    SAVED_DATA_THRESHOLD: ConfigKey("same", "with optimized_model_filepath"),
    SAVED_FORMAT: ConfigKey(
        "same", "the ORT format has no place for operators outside of ONNX: see ORT_ENABLE_BASIC"
    ),
    LAST_ROW: ConfigKey("same", "computes the output of that name for the last position alone"),
    CACHES_IN_PLACE: ConfigKey("same", "1: MultiHeadAttention writes into caches that stay"),
    ROW_MATRICES: ConfigKey("same", "1: matrices that are inputs may differ by row of the batch"),
    "session.load_model_format": ConfigKey(
        "better", "the format is recognized by the file's content"
    ),
    "session.record_ep_graph_assignment_info": ConfigKey("better", "it is always recorded"),
    "session.allow_released_opsets_only": ConfigKey(
        "better", "operators of an opset under development run if a provider has them"
    ),
    "session.disable_prepacking": ConfigKey(
        "same", "weights are used in place, those of 3 x 3 convolutions as well"
    ),
    "session.prepack.enable_parallel": _PACKED_ONCE,
    "session.save_external_prepacked_constant_initializers": _PACKED_ONCE,
    "session.use_device_allocator_for_initializers": _NO_ARENA,
    "session.use_env_allocators": _NO_ARENA,
    "session.use_memory_mapped_ort_model": _MAPPED,
    "session.use_ort_model_bytes_directly": _MAPPED,
    "session.use_ort_model_bytes_for_initializers": _MAPPED,
    "session.use_external_initializer_file_buffers_directly": _MAPPED,
    "session.inter_op.allow_spinning": _SELF_SIZED,
    "session.intra_op.allow_spinning": _SHARED,
    "session.inter_op.spin_backoff_max": _SELF_SIZED,
    "session.intra_op.spin_backoff_max": _SELF_SIZED,
    "session.inter_op.spin_duration_us": _SELF_SIZED,
    "session.intra_op.spin_duration_us": _SHARED,
    "session.force_spinning_stop": _SELF_SIZED,
    "session.dynamic_block_base": _SELF_SIZED,
    "session.intra_op_thread_affinities": ConfigKey(
        "without effect", "all sessions share the threads; os.sched_setaffinity places them"
    ),
    "session.set_denormal_as_zero": ConfigKey(
        "without effect", "denormals are computed by IEEE 754"
    ),
    "session.strict_shape_type_inference": ConfigKey(
        "without effect", "a run uses the shapes of its arrays"
    ),
    "session.max_shape_override": ConfigKey("without effect", "memory is not planned ahead"),
    "session.strict_workspace_verification": ConfigKey(
        "without effect", "memory is not planned ahead"
    ),
    "session.disable_aot_function_inlining": ConfigKey(
        "without effect", "functions are always inlined, except a provider's own operators"
    ),
    "session.function_expansion_byte_limit": ConfigKey("without effect", "inlining copies nothing"),
    EXPANSION: ConfigKey(
        "same", "unless set, functions may expand to 50,000 nodes, or 64 times the model's own"
    ),
    "session.graph_optimizations_loop_level": ConfigKey(
        "without effect", "each transform runs once, in a fixed order"
    ),
    "session.collect_node_memory_stats_to_file": ConfigKey(
        "without effect", "profiling has every node's bytes"
    ),
    "session.disable_quant_qdq": _OWN_FUSIONS,
    "session.enable_quant_qdq_cleanup": _OWN_FUSIONS,
    "session.disable_double_qdq_remover": _OWN_FUSIONS,
    "session.disable_qdq_constant_folding": _OWN_FUSIONS,
    "session.enable_dq_matmulnbits_fusion": _OWN_FUSIONS,
    "session.qdq_matmulnbits_accuracy_level": ConfigKey(
        "same", "4, the default, lets blockwise quantized products round activations to 8 bits"
    ),
    "session.qdq_matmulnbits_block_size": _OWN_FUSIONS,
    "session.qdqisint8allowed": _OWN_FUSIONS,
    "session.x64quantprecision": _ITS_KERNELS,
    "session.gqa_value_layout": _ITS_KERNELS,
    "session.debug_layout_transformation": _OWN_FUSIONS,
    "session.enable_saved_runtime_optimizations": _OWN_FUSIONS,
    "optimization.minimal_build_optimizations": _OWN_FUSIONS,
    "optimization.enable_gelu_approximation": _OWN_FUSIONS,
    "optimization.enable_cast_chain_elimination": _OWN_FUSIONS,
    "optimization.constant_folding_max_output_size_in_bytes": ConfigKey(
        "better", "it limits the memory of a folded constant beyond its sources; views need none"
    ),
    "mlas.disable_kleidiai": _ITS_KERNELS,
    "mlas.kleidiai.conv_igemm_max_work": _ITS_KERNELS,
    "mlas.enable_gemm_fastmath_arm64_bfloat16": ConfigKey(
        "same", "1: as precision='bf16' of the CPU provider, on x86 with AMX or AVX512-BF16"
    ),
    "mlas.nchwc_depthwise_sliding": _ITS_KERNELS,
    "mlas.nchwc_pointwise_conv_max_input_channel_batch": _ITS_KERNELS,
    "mlas.qnbit.force_fp32": _ITS_KERNELS,
    "mlas.use_lut_gemm": _ITS_KERNELS,
    "ep.cuda.fpa_intb_gemm": _ITS_KERNELS,
    "ep.cuda.fpa_intb_profile_m": _ITS_KERNELS,
    "ep.cuda.gqa_workspace_max_total_sequence_length": _ITS_KERNELS,
    "ep.cpu.qmoe_deferred_scale": _ITS_KERNELS,
    "ep.cuda.fpa_intb_dequant_gemm_min_m": _ITS_KERNELS,
    "ep.cuda.matmul_nbits_m_chunk_size": _ITS_KERNELS,
    "ep.cuda.moe_packed_gpu_experts": _ITS_KERNELS,
    "ep.cuda.runtime_fusion.causal_conv_with_state": _OWN_FUSIONS,
    "ep.cuda.runtime_fusion.unit_swish": _OWN_FUSIONS,
    "ep.enable_weightless": _WEIGHTLESS,
    "ep.enable_weightless_mode": _WEIGHTLESS,
    "ep.enable_weightless_ep_context_nodes": _WEIGHTLESS,
    CONTEXT: ConfigKey("same", "for providers that compile to bytes: see SegmentProvider"),
    CONTEXT_FILE: ConfigKey("same", "the model that ep.context_enable writes"),
    "ep.context_embed_mode": ConfigKey("without effect", "compiled segments are in the model"),
    "ep.context_source_model_path": ConfigKey("without effect", "nothing refers to that model"),
    "ep.context_model_external_initializers_file_name": ConfigKey(
        "without effect", "weights are in the model"
    ),
    "session.compile_only": _NO_COMPILING,
    "session.disable_model_compile": ConfigKey("without effect", "providers compile in memory"),
    "session.fail_on_suboptimal_compiled_model": ConfigKey(
        "without effect", "compiled segments are in the model itself"
    ),
    "session.layer_assignment_settings": ConfigKey("refused", "providers=[...] decides"),
    "session.name_based_layer_assignment": ConfigKey("refused", "providers=[...] decides"),
    "session.node_partition_config_file": ConfigKey("refused", "providers=[...] decides"),
    "session.resource_cuda_partitioning_settings": ConfigKey("refused", "providers=[...] decides"),
    "session.enable_moe_expert_counting": _NO_MOE_STATISTICS,
    "session.enable_moe_expert_statistics": _NO_MOE_STATISTICS,
    **{f"session.external_data_loader.{name}": _MAPPED_DATA for name in DATA_LOADER},
    "session.kernel_dispatch_policy": _ITS_KERNELS,
    **{f"session.moe.offload.{name}": _NO_OFFLOAD for name in OFFLOAD},
    "session.moe_expert_counter_alpha": _NO_MOE_STATISTICS,
    "session.moe_expert_counter_beta": _NO_MOE_STATISTICS,
    "session.moe_expert_counter_state_file": _NO_MOE_STATISTICS,
}

# The effects of entries of run options.
RUN_KEYS: dict[str, ConfigKey] = {
    "memory.enable_memory_arena_shrinkage": _NO_ARENA,
    "disable_synchronize_execution_providers": ConfigKey(
        "without effect", "outputs are on the host when a run returns"
    ),
    "gpu_graph_id": ConfigKey("without effect", "captured runs are distinguished by shapes"),
    "run.profiling": ConfigKey("without effect", "enable_profiling times every run"),
    "qnn.htp_perf_mode": _ITS_KERNELS,
    "qnn.htp_perf_mode_post_run": _ITS_KERNELS,
    "qnn.rpc_control_latency": _ITS_KERNELS,
    "qnn.lora_config": _ITS_KERNELS,
}

# Entries that are whole numbers and not negative.
WHOLE_NUMBER_ENTRIES = frozenset(
    {
        EXPANSION,
        SAVED_DATA_THRESHOLD,
        "optimization.constant_folding_max_output_size_in_bytes",
        "session.intra_op.spin_duration_us",
        "session.qdq_matmulnbits_accuracy_level",
    }
)

_warned: set[str] = set()


def check_entry(key: str, value: str, keys: Mapping[str, ConfigKey], kind: str) -> None:
    """Raise for refused keys, and warn once of an unknown key.

    Raises:
        InvalidArgument: The key or the value is no string, or the value is no number and must be.
        NotSupported: The entry is refused.
    """
    if not (isinstance(key, str) and isinstance(value, str)):
        raise InvalidArgument(
            f"a {kind} configuration entry is a pair of strings, not {key!r}: {value!r}"
        )
    if key in WHOLE_NUMBER_ENTRIES and not value.isdecimal():
        raise InvalidArgument(
            f"the {kind} configuration entry {key} is {value!r}; expected a number, 0 or more"
        )
    known = keys.get(key)
    if known is None:
        if key not in _warned:
            _warned.add(key)
            close = did_you_mean(key, keys)
            close = close if close.startswith(";") else ""
            warnings.warn(
                f"{kind} configuration entry {key!r} is unknown and has no effect{close}",
                stacklevel=3,
            )
    elif known.effect == "refused" and value not in ("", "0"):
        raise NotSupported(f"the {kind} configuration entry {key} is refused: {known.reason}")
    elif known.effect == "without effect":
        log.info("%s has no effect: %s", key, known.reason)


def found_entry(key: str, entries: Mapping[str, str], kind: str) -> str:
    """Return a stored entry.

    Raises:
        NotFound: There is none of that name.
    """
    try:
        return entries[key]
    except KeyError:
        raise errors.NotFound(
            f"no {kind} configuration entry {key!r}{did_you_mean(key, entries)}"
        ) from None


def set_attribute(options: object, key: str, value: str) -> None:
    """Set the attribute that an entry stands for, if it stands for one.

    Raises:
        InvalidArgument: The value does not fit the attribute.
    """
    if (name := ENTRY_ATTRIBUTES.get(key)) is None:
        return
    present = getattr(options, name)
    try:
        if isinstance(present, bool):
            setattr(options, name, {"0": False, "1": True}[value])
        else:
            setattr(options, name, type(present)(int(value) if isinstance(present, int) else value))
    except (KeyError, ValueError):
        raise InvalidArgument(
            f"the session configuration entry {key} is {value!r}; expected one such as "
            f"{int(present) if isinstance(present, int) else present!r}"
        ) from None
