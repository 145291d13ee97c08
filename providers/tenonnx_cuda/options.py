"""The CUDA provider's options: onnxruntime's names and defaults, and one of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNLIMITED: Final = 2**64 - 1

CHOICES: Final = {
    "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
    "weights": ("device", "mapped", "shared"),
}


@dataclass(frozen=True)
class CudaOptions:
    """The provider's options in a session.

    Attributes:
        device_id: Which GPU, as ``CUDA_VISIBLE_DEVICES`` numbers them.
        gpu_mem_limit: Bytes that a session's intermediate results may take; weights, which are
            shared, do not count.
        enable_cuda_graph: Capture a run for each combination of input shapes, and replay it.
        user_compute_stream: The address of a ``cudaStream_t`` to run on; one of its own if 0.
        use_tf32: Let float32 products and convolutions round their factors to 10 bits.
        cudnn_conv_algo_search: ``EXHAUSTIVE`` times cuDNN's plans for a convolution and keeps the
            fastest; the others take its first one.
        cudnn_conv_use_max_workspace: Let its plans take much working memory.
        sdpa_kernel: Which kernels attend, as bits. 8 asks for cuDNN's, though one may have to be
            compiled for each length; others without it ask for the provider's own. With 0 they
            are cuDNN's where one serves all lengths, or the model has no others.
        weights: ``device`` copies each weight once to the device; ``mapped`` lets kernels read
            them from the host's memory, for models larger than the device's; ``shared`` copies
            each once for all processes of the user that ask for it.
        has_user_compute_stream, do_copy_in_default_stream, arena_extend_strategy,
            cudnn_conv1d_pad_to_nc1d, fuse_conv_bias, enable_skip_layer_norm_strict_mode,
            prefer_nhwc,
            use_ep_level_unified_stream, gpu_external_alloc, gpu_external_free,
            gpu_external_empty_cache, tunable_op_enable, tunable_op_tuning_enable,
            tunable_op_max_tuning_duration_ms: Accepted for onnxruntime's sake, without effect.

    Raises:
        ValueError: A value is none that the option can have.
    """

    device_id: int = 0
    gpu_mem_limit: int = UNLIMITED
    enable_cuda_graph: bool = False
    user_compute_stream: int = 0
    use_tf32: bool = True
    weights: str = "device"
    has_user_compute_stream: bool = False
    do_copy_in_default_stream: bool = True
    arena_extend_strategy: str = "kNextPowerOfTwo"
    cudnn_conv_algo_search: str = "EXHAUSTIVE"
    cudnn_conv_use_max_workspace: bool = True
    sdpa_kernel: int = 0
    cudnn_conv1d_pad_to_nc1d: bool = False
    fuse_conv_bias: bool = False
    enable_skip_layer_norm_strict_mode: bool = False
    prefer_nhwc: bool = False
    use_ep_level_unified_stream: bool = False
    gpu_external_alloc: int = 0
    gpu_external_free: int = 0
    gpu_external_empty_cache: int = 0
    tunable_op_enable: bool = False
    tunable_op_tuning_enable: bool = False
    tunable_op_max_tuning_duration_ms: int = 0

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ValueError(f"{name} is {value!r}; expected {' or '.join(known)}")
        for name in ("device_id", "gpu_mem_limit", "user_compute_stream", "sdpa_kernel"):
            if (number := getattr(self, name)) < 0:
                raise ValueError(f"{name} is {number}; expected 0 or more")
