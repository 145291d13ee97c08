"""What a launch must have seen to before its kernel reads anything, by kernel.

Kernels check nothing of shapes. ``plan`` is what constants and attributes decide, once; ``launch``
what dtypes, shapes and strides decide, before a capture is made that fits only such arrays;
``values`` what the numbers in inputs decide, in each run: the kernel looks before it reads, and
refuses (``Launch.refusal``), or the launch is not captured and looks itself. What does not hold is
left to numpy's kernel, which says what is wrong.
"""

from __future__ import annotations

from typing import NamedTuple


class Contract(NamedTuple):
    """What must hold of a kernel's arguments, and who sees to it."""

    plan: str = ""
    launch: str = ""
    values: str = ""
    captured: bool = True


PRODUCT = Contract(
    launch="A's columns are B's rows; a bias has a number per column, a residual the result's shape"
)
CODES = Contract(
    plan="codes, scales and zero points have the lengths that bits, block and columns say",
    launch="rows have the matrix' depth; a bias has a number per column",
)
WINDOWS = Contract(
    plan="kernel_shape, strides, dilations and pads have the rank; weights divide into groups",
    launch="channels are the weights'; each window begins in the padded image; a bias has a number "
    "per channel",
)
BYTES = Contract(
    plan="a scale, a zero point and a bias have one number, or one per channel, and their dtypes",
    launch="the image has the dtype of its zero point; windows as for real numbers",
)
ELEMENTS = Contract(launch="inputs are broadcast to the result's shape; dtypes are the program's")
ROWS = Contract(launch="scale and bias have a number per normalized element, or channel")

CONTRACTS: dict[str, Contract] = {
    "attention.attention.attend": Contract(
        launch="heads divide, sizes agree, a mask is broadcast to the scores",
        values="key lengths are at most the keys there are",
    ),
    "attention.group_query.group_query": Contract(
        plan="heads divide; a window has a size",
        launch="widths divide into heads; caches have the heads' shape; a length per entry",
        values="lengths fit the caches, total_sequence_length is positive, positions have angles",
    ),
    "attention.linear.linear_attend": Contract(launch="heads divide, states have the heads' shape"),
    "attention.rotary.rotate": Contract(launch="cosines and sines are broadcast to x"),
    "attention.rotary.embed": Contract(
        launch="caches have half of what is turned; a position per token, or one",
        values="positions are rows of the caches",
    ),
    **dict.fromkeys(
        [f"matmul.{kind}.{kind}_{dtype}" for kind in ("gemm", "gemv") for dtype in ("f16", "bf16")],
        PRODUCT._replace(captured=False),
    ),
    "matmul.gemm.gemm_f32": PRODUCT,
    "matmul.gemv.gemv_f32": PRODUCT,
    "matmul.dense.run_layers": Contract(
        plan="each layer's rows are the columns of the one before; a bias has a number per column",
        launch="x is a matrix of the first layer's rows",
    ),
    **dict.fromkeys([f"quantized.gemm.q_gemm_{bits}" for bits in (2, 4, 8)], CODES),
    **dict.fromkeys([f"quantized.bytes.q_bytes_{bits}" for bits in (2, 4, 8)], CODES),
    **dict.fromkeys([f"quantized.gemv_dot.q_dots_{bits}" for bits in (2, 4, 8)], CODES),
    **dict.fromkeys([f"quantized.reals.q_reals_{bits}" for bits in (2, 4, 8)], CODES),
    **dict.fromkeys([f"quantized.gemv_axpy.q_gemv_bytes_{bits}" for bits in (2, 4)], CODES),
    **dict.fromkeys([f"quantized.gemv_axpy.q_gemv_reals_{bits}" for bits in (2, 4, 8)], CODES),
    "quantized.gather.gather_rows": Contract(
        plan=CODES.plan, values="rows beyond the table are zeros, as in onnxruntime"
    ),
    **dict.fromkeys(
        [
            "conv.conv.conv_f32",
            "conv.depthwise.conv_depthwise",
            "conv.channels.conv_channels",
            "conv.pixels.conv_pixels",
            "conv.winograd.conv_winograd",
            "conv.pool.pool_f32",
            "conv.pool.average_f32",
        ],
        WINDOWS,
    ),
    "conv.phases.interleave_f32": WINDOWS._replace(captured=False),
    "conv.resize.resize_f32": Contract(
        plan="scales or sizes have the rank", launch="the result has elements", captured=False
    ),
    "conv.channel_norms.normalize_channels": ROWS._replace(plan="num_groups is positive"),
    "conv.boxes.suppress": Contract(
        launch="four numbers per box, a score per class and box",
        values="counts and thresholds are one number each",
        captured=False,
    ),
    "int8.conv.conv_int8": BYTES,
    "int8.depthwise.byte_depthwise": BYTES,
    "int8.gemm.byte_gemm": BYTES,
    **dict.fromkeys(
        [f"int8.requantize.{name}" for name in ("max_pool", "average", "add", "multiply")],
        BYTES._replace(captured=False),
    ),
    "int8.table.look_up": Contract(plan="scales and zero points have one number each"),
    "int8.quantizing.quantize": BYTES._replace(captured=False),
    "int8.quantizing.dequantize": BYTES._replace(captured=False),
    "int8.quantizing.quantize_by_range": Contract(values="the range is finite"),
    "elementwise.program.run_program": ELEMENTS,
    "norm.norms.softmax": Contract(launch="the axis is the last one, with elements"),
    "norm.norms.normalize_all": ROWS,
    "reduce.reduction.reduce": Contract(launch="axes are the input's, and have elements"),
    "reduce.topk.top_k": Contract(values="k is at most the axis, in each run"),
    "data_movement.moving.move": Contract(
        plan="numpy moves the places of elements, and refuses what is wrong"
    ),
    "data_movement.concat.concat": Contract(
        launch="shapes agree but along the axis", captured=False
    ),
    "data_movement.picking.pick": Contract(
        launch="as many rows of places as of data", values="places are in a row", captured=False
    ),
    "data_movement.transpose.transpose": Contract(launch="strides are positive"),
    "recurrent.layer.run_layer": Contract(
        plan="hidden_size is R's",
        launch="W, R, B and states agree; a length per item",
        values="lengths are from 0 to the steps",
    ),
    "ml.distances.distances_f32": Contract(launch="rows have the points' features"),
    "ml.distances.distances_f64": Contract(launch="rows have the points' features"),
    "ml.svm.couple": Contract(plan="a probability per pair of classes", captured=False),
    "ml.trees.score_f32": Contract(
        plan="lists of one length; branches, leaves and targets exist; no cycle; features from 0",
        launch="the input has the features that nodes test",
    ),
}
CONTRACTS["ml.trees.score_f64"] = CONTRACTS["ml.trees.score_f32"]
