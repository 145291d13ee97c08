"""Graph transforms: less nodes, and nodes that say what several of them compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenonnx import Transform, hookimpl

MICROSOFT = "com.microsoft"

CONVOLUTION = ("Conv", "ConvTranspose")

CLASSICAL = (
    *("ArrayFeatureExtractor", "LinearClassifier", "LinearRegressor", "LpNormalization"),
    *("ReduceLogSumExp", "ReduceSumSquare", "Scaler", "TreeEnsembleClassifier"),
)

ATTENTION_OPERATORS = ("Attention", "GroupQueryAttention", "MultiHeadAttention", "Softmax")

FUSED = (
    *("Attention", "BiasGelu", "CausalConvWithState", "FastGelu", "FusedGemm", "FusedMatMul"),
    *("GatedRMSNorm", "Gelu", "LinearAttentionGate", "MultiHeadAttention", "QAttention"),
    *("QuickGelu", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
)


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the transforms; they run in this order, most once constants are folded."""

    def add(name: str, level: Any, order: int, place: str, *needs: Any, domain: str = "") -> None:
        apply = Transform.later(f"tenonnx_fuse.{place}")
        register(Transform(name, apply, level, order, domain, needs))

    add("lower-nchwc", "required", 0, "nchwc:lower_blocks", "ReorderOutput")
    add("classical-models", "basic", 5, "classical:write_out", CLASSICAL)
    add("caches-in-place", "basic", 4, "caches_in_place:caches_in_place", "MultiHeadAttention")
    add("microsoft-operators", "extended", 6, "microsoft:write_out", FUSED)
    add("last-row", "basic", 7, "last_row:last_row", ATTENTION_OPERATORS)
    add("row-matrices", "basic", 8, "row_matrices:row_matrices", ATTENTION_OPERATORS, "MatMul")
    add("common-subexpressions", "basic", 22, "subexpressions:share_subexpressions")
    add("cast-chains", "basic", 24, "casts:drop_casts", "Cast")
    add("redundant-nodes", "basic", 26, "redundant:drop_redundant")
    add(
        "pairwise-distances",
        "extended",
        27,
        "distances:pairwise_distances",
        "Scan",
        domain=MICROSOFT,
    )
    add("cancel-transposes", "basic", 28, "transposes:cancel_transposes", "Transpose")
    add("conv-pads", "basic", 29, "pads:fold_pads", "Pad", "Conv")
    add("conv-batchnorm", "basic", 30, "conv:fold_into_weights", CONVOLUTION)
    add("conv-bias", "basic", 31, "conv:fold_into_bias", CONVOLUTION, ("Add", "Sub"))
    add("transposed-gemm", "basic", 50, "products:fold_transposes", "Transpose")
    add("matmul-add", "basic", 52, "products:matmul_add", "MatMul", "Add")
    add("gelu", "extended", 56, "gelu:gelu", ("Erf", "Tanh"))
    add("widen-fp16", "extended", 58, "widen_fp16:widen_fp16")
    add("layer-norm", "extended", 60, "norms:layer_norm", "ReduceMean")
    add("rms-norm", "extended", 61, "norms:rms_norm", "ReduceMean")
    add("swish", "extended", 63, "gelu:swish", "Sigmoid")
    add("hard-swish", "extended", 62, "gelu:hard_swish", ("Clip", "HardSigmoid"))
    add("attention", "basic", 65, "attention:attention", "Softmax", domain=MICROSOFT)
    add("packed-heads", "extended", 66, "packed:packed_heads", "Attention", domain=MICROSOFT)
