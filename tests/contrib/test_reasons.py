"""Each operator of com.microsoft has a reason: onnxruntime runs it, or something writes it."""

from __future__ import annotations

import pytest

from tenonnx_contrib.listing import LISTING

state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")

BUILDER = "builders of language models, such as the one of onnxruntime-genai"
EXPORTER = "symbolic functions that projects give torch's exporter"
OPTIMIZER = "onnxruntime, where it saves a model that it has optimized for other providers"
TRANSFORMERS = "the scripts of onnxruntime.transformers, or they rewrite it"

WRITTEN = {
    "BiasAdd": TRANSFORMERS,
    "BiasSoftmax": OPTIMIZER,
    "BiasSplitGelu": TRANSFORMERS,
    "GatedRelativePositionBias": TRANSFORMERS,
    "GroupNorm": TRANSFORMERS,
    "Irfft": EXPORTER,
    "MatMulBlockQuantizedFp4Weight": BUILDER,
    "MatMulBlockQuantizedFp8Weight": BUILDER,
    "NhwcConv": TRANSFORMERS,
    "NhwcFusedConv": OPTIMIZER,
    "PackedAttention": TRANSFORMERS,
    "PackedMultiHeadAttention": TRANSFORMERS,
    "PagedAttention": BUILDER,
    "RelativePositionBias": TRANSFORMERS,
    "RemovePadding": TRANSFORMERS,
    "RestorePadding": TRANSFORMERS,
    "Rfft": EXPORTER,
    "SkipGroupNorm": TRANSFORMERS,
}
"""The writers of the operators that onnxruntime's CPU does not run."""


def test_operators_are_run_by_onnxruntime_or_written_by_something() -> None:
    run = {
        kernel.op_name
        for kernel in state.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider" and kernel.domain == "com.microsoft"
    }
    names = {each.rpartition("-")[0] for text in LISTING.values() for each in text.split()}
    own = {name for name in names if "::" not in name}
    assert own - run == set(WRITTEN)
