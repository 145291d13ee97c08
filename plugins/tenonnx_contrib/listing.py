"""The module of each operator; it is imported when one of its operators is first needed.

Written by `python tools/kernel_listing.py`; a test checks that it is up to date.
"""

from __future__ import annotations

from typing import Final

LISTING: Final = {
    "activations": (
        "Gelu-1 BiasGelu-1 FastGelu-1 QuickGelu-1 BiasSplitGelu-1 BiasAdd-1 BiasSoftmax-1 "
        "ScaledSiLU-1 GatedAdd-1"
    ),
    "attention_lstm": "AttnLSTM-1",
    "beam_search": "BeamSearch-1",
    "block_float": "MatMulBnb4-1 MatMulBlockQuantizedFp8Weight-1 MatMulBlockQuantizedFp4Weight-1",
    "branches": (
        "GatedRMSNorm-1 BranchwiseRMSNorm-1 EngramGate-1 HyperConnectionPreMix-1 "
        "HyperConnectionPostMix-1"
    ),
    "delta_net": "GatedDeltaNet-1",
    "experts": "MoE-1 QMoE-1",
    "fused": "FusedConv-1 FusedGemm-1 FusedMatMul-1 TransposeMatMul-1",
    "gather_packed": "GatherPacked-1",
    "gather_quantized": "GatherBlockQuantized-1",
    "greedy_search": "GreedySearch-1 Sampling-1",
    "group_query": "GroupQueryAttention-1",
    "hashing": "MurmurHash3-1 NGramHashMapping-1 VarlenNGramHashMapping-1",
    "images": (
        "GridSample-1 NhwcMaxPool-1 MaxpoolWithMask-1 NhwcFusedConv-1 NhwcConv-1 "
        "ConvTransposeWithDynamicPads-1 CropAndResize-1 GroupNorm-1 SkipGroupNorm-1"
    ),
    "integer_product": "MatMulIntegerToFloat-1 DynamicQuantizeMatMul-1 QGemm-1 MatMulInteger16-1",
    "matching": "DynamicTimeWarping-1 BifurcationDetector-1",
    "matmul_nbits": "MatMulNBits-1 MatMulFpQ4-1",
    "multi_head": "MultiHeadAttention-1 DecoderMaskedMultiHeadAttention-1 Attention-1 QAttention-1",
    "packed_states": "VarlenCausalConvWithState-1",
    "padding": (
        "RemovePadding-1 RestorePadding-1 PackedAttention-1 PackedMultiHeadAttention-1 "
        "RelativePositionBias-1 GatedRelativePositionBias-1"
    ),
    "paged_attention": "PagedAttention-1",
    "qlinear": (
        "DequantizeLinear-1 QuantizeLinear-1 QLinearAdd-1 QLinearMul-1 QLinearSigmoid-1 "
        "QLinearLeakyRelu-1 QLinearSoftmax-1 QLinearConcat-1 QLinearWhere-1 QLinearAveragePool-1 "
        "QLinearGlobalAveragePool-1 QLinearConv-1"
    ),
    "quantized_lstm": "DynamicQuantizeLSTM-1",
    "rotary": "RotaryEmbedding-1 MRotaryEmbedding-1",
    "routing": "MoEGroupRouter-1",
    "skip_norm": (
        "SkipLayerNormalization-1 SkipSimplifiedLayerNormalization-1 EmbedLayerNormalization-1 "
        "QEmbedLayerNormalization-1 ai.onnx::SimplifiedLayerNormalization-1"
    ),
    "sparse_attention": "SparseAttention-1",
    "sparse_product": "SparseToDenseMatMul-1",
    "states": "LinearAttention-1 LinearAttentionGate-1 CausalConvWithState-1",
    "tensors": (
        "SampleOp-1 GatherND-1 Trilu-1 Pad-1 Range-1 Unique-1 ExpandDims-1 UnfoldTensor-1 "
        "Inverse-1 Rfft-1 Irfft-1 CDist-1 NGramRepeatBlock-1"
    ),
    "whisper_search": "WhisperBeamSearch-1",
    "words": "Tokenizer-1 WordConvEmbedding-1",
}
