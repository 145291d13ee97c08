"""com.microsoft's fused operators as ONNX's own, for which providers have kernels.

onnxruntime's optimizer writes them, and so do builders of language models.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tenonnx.graph.dtypes import dtype_of
from tenonnx.graph.sizes import operand, rank_of
from tenonnx.graph.traits import ACTIVATIONS
from tenonnx_fuse import MICROSOFT
from tenonnx_fuse.fused_attention import attention, multi_head_attention, q_attention
from tenonnx_fuse.known import attribute, weight_of
from tenonnx_fuse.writing import Made, Refusal, Writer, Writers, is_read, writing_out

HALF_TYPES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

# Activations of a FusedGemm.
OF_GEMM = ("Relu", "Sigmoid", "Tanh", "LeakyRelu")


def bias_gelu(node: ir.Node) -> Made:
    """A sum and Gelu."""
    if (operand(node, 1) is not None) != (node.op_type == "BiasGelu"):
        raise Refusal("it is none: a bias is there or not")
    writer = Writer()
    return Made(writer.nodes, [_gelu(writer, *node.inputs, approximate="none")])


def fast_gelu(node: ir.Node) -> Made:
    """The same, but for Gelu by a tangent."""
    writer = Writer()
    return Made(writer.nodes, [_gelu(writer, *node.inputs, approximate="tanh")])


def _gelu(
    writer: Writer, x: ir.Value | None, bias: ir.Value | None = None, *, approximate: str
) -> ir.Value:
    """Write a Gelu; where the sum has 16 bits, in float32, to be rounded once."""
    if bias is None:
        return writer.add("Gelu", x, version=20, approximate=approximate)
    narrow = _narrow(x)
    total = writer.add("Add", _wide(writer, x, narrow), _wide(writer, bias, narrow))
    return _back(writer, writer.add("Gelu", total, version=20, approximate=approximate), narrow)


def _narrow(x: ir.Value | None) -> ir.DataType | None:
    """Return the type of what has 16 bits, else ``None``."""
    dtype = dtype_of(x)
    return dtype if dtype in HALF_TYPES else None


def _wide(writer: Writer, x: ir.Value | None, narrow: ir.DataType | None) -> ir.Value | None:
    return writer.add("Cast", x, to=int(ir.DataType.FLOAT)) if narrow and x is not None else x


def _back(writer: Writer, y: ir.Value, narrow: ir.DataType | None) -> ir.Value:
    return writer.add("Cast", y, to=int(narrow)) if narrow else y


def quick_gelu(node: ir.Node) -> Made:
    """``x * sigmoid(alpha * x)``."""
    x, writer = node.inputs[0], Writer()
    narrow = _narrow(x)
    if not narrow and dtype_of(x) != ir.DataType.FLOAT:
        raise Refusal("its numbers are not known to be float32, float16 or bfloat16")
    alpha = np.full((), attribute(node, "alpha", 1.702), np.float32)
    x = _wide(writer, x, narrow)
    share = writer.add("Sigmoid", writer.add("Mul", x, alpha))
    return Made(writer.nodes, [_back(writer, writer.add("Mul", x, share), narrow)])


def fused_matmul(node: ir.Node) -> Made:
    """A product of matrices that may be turned, and a factor."""
    a, b = node.inputs[:2]
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        raise Refusal("it turns batches")
    # 16 bits might not hold a product before its factor.
    alpha = attribute(node, "alpha", 1.0)
    if alpha != 1 and ir.DataType.FLOAT not in (dtype_of(a), dtype_of(b)):
        raise Refusal("its numbers are not known to be float32")
    writer, operands = Writer(), []
    for value, name in ((a, "transA"), (b, "transB")):
        rank = rank_of(value)
        if attribute(node, name, 0):
            if rank is None or rank < 2:
                raise Refusal("the rank of what it turns is not known")
            order = [*range(rank - 2), rank - 1, rank - 2]
            value = writer.add("Transpose", value, perm=order)
        operands.append(value)
    y = writer.add("MatMul", *operands)
    if alpha != 1:
        y = writer.add("Mul", y, np.array(alpha, np.float32))
    return Made(writer.nodes, [y])


def fused_gemm(node: ir.Node) -> Made:
    """Gemm, and an activation."""
    name = attribute(node, "activation", "")
    if name not in OF_GEMM:
        raise Refusal(f"its activation is {name!r}")
    kept = {
        key: attribute(node, key, default)
        for key, default in (("alpha", 1.0), ("beta", 1.0), ("transA", 0), ("transB", 0))
    }
    writer = Writer()
    y = writer.add("Gemm", *node.inputs, **kept)
    parameters = ACTIVATIONS[name].items()
    own = {key: attribute(node, f"activation_{key}", default) for key, default in parameters}
    return Made(writer.nodes, [writer.add(name, y, **own)])


def skip_norm(node: ir.Node) -> Made:
    """A sum, and its normalization; a bias is added where a product is made."""
    if is_read(node, 1) or is_read(node, 2):
        raise Refusal("mean or deviation are read")
    by_layer = node.op_type == "SkipLayerNormalization"
    beta = operand(node, 3) if by_layer else None
    writer, narrow = Writer(), _narrow(node.inputs[0])
    bias = _wide(writer, operand(node, 4 if by_layer else 3), narrow)
    makers = [None if value is None else value.producer() for value in node.inputs[:2]]
    parts = [_wide(writer, value, narrow) for value in node.inputs[:2]]
    if bias is not None:
        first = next((n for n, each in enumerate(makers) if each and "MatMul" in each.op_type), 0)
        parts[first] = writer.add("Add", parts[first], bias)
    total = writer.add("Add", *parts)
    norm, version = ("LayerNormalization", 17) if by_layer else ("RMSNormalization", 23)
    weights = [node.inputs[2], *([] if beta is None else [beta])]
    inputs = [total, *(_wide(writer, value, narrow) for value in weights)]
    epsilon = attribute(node, "epsilon", 1e-12)
    y = writer.add(norm, *inputs, version=version, epsilon=epsilon)
    y, given = _back(writer, y, narrow), None
    if not narrow or is_read(node, 3):
        given = _back(writer, total, narrow)
    return Made(writer.nodes, [y, None, None, given])


def causal_conv(node: ir.Node) -> Made:
    """A convolution of what was kept and what is new, of which the last is kept."""
    x, weight, bias, past = (operand(node, place) for place in range(4))
    constant = weight_of(weight)
    if attribute(node, "channels_last", 0) or attribute(node, "state_window", 0):
        raise Refusal("its channels are last, or it keeps several states")
    if constant is None or past is None or dtype_of(weight) != ir.DataType.FLOAT:
        raise Refusal("it has no past, or its weights are no constant of float32")
    channels, _, count = constant.shape
    dilation, activation = attribute(node, "dilation", 1), attribute(node, "activation", "none")
    if len(constant.shape) != 3 or count < 2 or activation not in ("none", "silu", "swish"):
        raise Refusal("it keeps nothing, or its activation is another")
    writer = Writer()
    whole = writer.add("Concat", past, x, axis=2)
    inputs = [whole, weight, *([] if bias is None else [bias])]
    y = writer.add("Conv", *inputs, group=channels, dilations=[dilation], kernel_shape=[count])
    if activation != "none":
        y = writer.add("Mul", y, writer.add("Sigmoid", y))
    last = np.array([-(count - 1) * dilation]), np.array([np.iinfo(np.int64).max]), np.array([2])
    return Made(writer.nodes, [y, writer.add("Slice", whole, *last)])


def gated_norm(node: ir.Node) -> Made:
    """The norm of every group, times an activation."""
    x, scale, gate = node.inputs[:3]
    constant, activation = weight_of(scale), attribute(node, "activation", "silu")
    if constant is None or dtype_of(scale) != ir.DataType.FLOAT or len(constant.shape) != 1:
        raise Refusal("its scale is no constant of float32")
    if activation not in ("sigmoid", "silu", "swish"):
        raise Refusal(f"its activation is {activation!r}")
    writer = Writer()
    rows = writer.add("Reshape", x, np.array([-1, constant.shape[0]]))
    epsilon = attribute(node, "epsilon", 1e-5)
    rows = writer.add("RMSNormalization", rows, scale, version=23, epsilon=epsilon)
    y = writer.add("Reshape", rows, writer.add("Shape", x))
    share = writer.add("Sigmoid", gate)
    if activation != "sigmoid":
        share = writer.add("Mul", gate, share)
    return Made(writer.nodes, [writer.add("Mul", y, share)])


def linear_attention_gate(node: ir.Node) -> Made:
    """The shares of states and of updates that are kept."""
    a, bias, scale, b = (operand(node, place) for place in range(4))
    if dtype_of(bias) != ir.DataType.FLOAT:
        raise Refusal("its bias is not known to be of float32")
    writer = Writer()
    decay = writer.add("Softplus", writer.add("Add", a, bias))
    kept = writer.add("Mul", scale, decay)
    return Made(writer.nodes, [kept, None if b is None else writer.add("Sigmoid", b)])


WRITERS: Writers = {
    (MICROSOFT, name): write
    for name, write in {
        "Attention": attention,
        "BiasGelu": bias_gelu,
        "CausalConvWithState": causal_conv,
        "FastGelu": fast_gelu,
        "FusedGemm": fused_gemm,
        "FusedMatMul": fused_matmul,
        "GatedRMSNorm": gated_norm,
        "Gelu": bias_gelu,
        "LinearAttentionGate": linear_attention_gate,
        "MultiHeadAttention": multi_head_attention,
        "QAttention": q_attention,
        "QuickGelu": quick_gelu,
        "SkipLayerNormalization": skip_norm,
        "SkipSimplifiedLayerNormalization": skip_norm,
    }.items()
}

write_out = writing_out(WRITERS)
