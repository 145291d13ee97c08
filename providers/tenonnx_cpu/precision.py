"""The precision of products: that of the model, or bfloat16 if a session wants it."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger("tenonnx")

BF16: Final = "bf16"
# Values of the provider's option, the default first.
PRECISIONS: Final = ("model", BF16)

# onnxruntime's entry of a session's configuration that asks for bfloat16.
FAST_PRODUCTS: Final = "mlas.enable_gemm_fastmath_arm64_bfloat16"

_warned: list[bool] = []


def warn_of_precision() -> None:
    """Log a warning, once per process, that nothing is multiplied in bfloat16."""
    if not _warned:
        _warned.append(True)
        log.warning(
            "precision='bf16' changes nothing: kernels multiply bfloat16 with AMX or AVX512-BF16, "
            "which this processor, its system or the kernels' target CPU lacks"
        )
