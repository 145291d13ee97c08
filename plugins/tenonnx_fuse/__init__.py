"""Graph transforms: less nodes, and nodes that say what several of them compute."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Transform, hookimpl

MICROSOFT = "com.microsoft"


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the transforms; they run in this order, once constants are folded."""
    from tenonnx_fuse import (
        activations,
        attention,
        casts,
        conv,
        gelu,
        islands,
        norms,
        packed,
        products,
        redundant,
        rotary,
        skip,
        subexpressions,
        transposes,
    )

    for transform in (
        Transform("common-subexpressions", subexpressions.share_subexpressions, "basic", order=22),
        Transform("cast-chains", casts.drop_casts, "basic", order=24),
        Transform("redundant-nodes", redundant.drop_redundant, "basic", order=26),
        Transform("cancel-transposes", transposes.cancel_transposes, "basic", order=28),
        Transform("conv-batchnorm", conv.fold_into_weights, "basic", order=30),
        Transform("conv-bias", conv.fold_into_bias, "basic", order=31),
        Transform("transposed-gemm", products.fold_transposes, "basic", order=50),
        Transform("matmul-add", products.matmul_add, "basic", order=52),
        Transform("float-islands", islands.widen_islands, "extended", order=58),
        Transform("layer-norm", norms.layer_norm, "extended", order=60),
        Transform("rms-norm", norms.rms_norm, "extended", order=61),
        Transform("gelu", gelu.gelu, "extended", order=62),
        Transform("swish", gelu.swish, "extended", order=63),
        Transform("rotary", rotary.rotary, "extended", order=64, domain=MICROSOFT),
        Transform("attention", attention.attention, "extended", order=65, domain=MICROSOFT),
        Transform("packed-heads", packed.packed_heads, "extended", order=66, domain=MICROSOFT),
        Transform("bias-gelu", gelu.bias_gelu, "extended", order=70, domain=MICROSOFT),
        Transform("skip-norm", skip.skip_norms, "extended", order=71, domain=MICROSOFT),
        Transform(
            "conv-activation", activations.conv_activation, "extended", order=72, domain=MICROSOFT
        ),
    ):
        register(transform)
