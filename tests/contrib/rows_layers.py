from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from draw import RNG, below, int32, positive, real, whole
from rows import Row


def activation_rows() -> Iterator[Row]:
    for dtype in (np.float32, np.float16):
        half: dict[str, Any] = {"rtol": 1e-2, "atol": 5e-3} if dtype == np.float16 else {}
        for op, shapes in (
            ("Gelu", [(3, 30)]),
            ("BiasGelu", [(3, 30), (30,)]),
            ("FastGelu", [(3, 30)]),
            ("FastGelu", [(3, 30), (30,)]),
            ("QuickGelu", [(3, 30)]),
        ):
            inputs = [real(*shape, dtype=dtype) for shape in shapes]
            yield Row(op, inputs, name=f"{np.dtype(dtype).name}-{len(shapes)}", **half)
    yield Row("ScaledSiLU", [real(3, 30)], {"alpha": 0.5}, name="alpha")
    yield Row("ScaledSiLU", [real(3, 30), real()], name="scale")
    yield Row("GatedAdd", [real(2, 3, 8), real(2, 3, 8), real(2, 3, 1)])


def fused_rows() -> Iterator[Row]:
    for activation, parameters in (
        ("Relu", []),
        ("Tanh", []),
        ("Sigmoid", []),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 0.7]),
        ("HardSigmoid", [0.3, 0.4]),
    ):
        given: dict[str, Any] = {"activation": activation, "group": 2, "pads": [1, 1, 1, 1]}
        given |= {"activation_params": parameters} if parameters else {}
        inputs = [real(2, 4, 5, 5), real(6, 2, 3, 3), real(6)]
        yield Row("FusedConv", inputs, given, name=activation)
        yield Row("FusedConv", [*inputs, real(2, 6, 5, 5)], given, name=f"{activation}-sum")
    for activation, named in (
        ("Relu", {}),
        ("Tanh", {}),
        ("Sigmoid", {}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("Elu", {"alpha": 0.7}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Selu", {"alpha": 1.5, "gamma": 1.1}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("ThresholdedRelu", {"alpha": 0.3}),
    ):
        given = {"activation": activation, "alpha": 0.75, "beta": 0.5, "transB": 1}
        given |= {f"activation_{key}": value for key, value in named.items()}
        inputs = [real(3, 5), real(4, 5), real(4)]
        yield Row("FusedGemm", inputs, given, name=activation)
    for turned in itertools.product((0, 1), repeat=4):
        names = ("transA", "transB", "transBatchA", "transBatchB")
        given = {"alpha": 0.5} | dict(zip(names, turned, strict=True))
        shapes = []
        for trans, batch, rows, columns in (
            (turned[0], turned[2], 4, 5),
            (turned[1], turned[3], 5, 6),
        ):
            inner = (columns, rows) if trans else (rows, columns)
            shapes.append((inner[0], 2, 3, inner[1]) if batch else (2, 3, *inner))
        inputs = [real(*shape) for shape in shapes]
        yield Row("FusedMatMul", inputs, given, name="".join(map(str, turned)))
    yield Row("TransposeMatMul", [real(2, 5, 3), real(4, 5)], {"transA": 1, "transB": 1})


def state_rows() -> Iterator[Row]:
    heads = ((4, 4), (4, 2), (2, 4))
    for rule, (q, kv), past in itertools.product(
        ("linear", "gated", "delta", "gated_delta"), heads, (False, True)
    ):
        per_key = kv * 8 if past else kv
        inputs = [
            real(2, 3, q * 8), real(2, 3, kv * 8, scale=0.25), real(2, 3, kv * 6),
            real(2, kv, 8, 6) if past else None,
            -positive(2, 3, per_key, high=1.0) if "gated" in rule else None,
            positive(2, 3, kv, high=1.0) if "delta" in rule else None,
        ]  # fmt: skip
        given = {"q_num_heads": q, "kv_num_heads": kv, "update_rule": rule}
        yield Row("LinearAttention", inputs, given, (0, 1), name=f"{rule}-{q}-{kv}-{past}")
    inputs = [real(2, 3, 4), real(4), real(4), real(2, 3, 4)]
    yield Row("LinearAttentionGate", inputs, {}, (0, 1))
    for activation, past, last, dilation in itertools.product(
        ("none", "silu"), (False, True), (0, 1), (1, 2)
    ):
        held = 3 * dilation
        state = real(*((2, held, 6) if last else (2, 6, held))) if past else None
        x = real(*((2, 5, 6) if last else (2, 6, 5)))
        given = {"activation": activation, "channels_last": last, "dilation": dilation}
        label = f"{activation}-{past}-{last}-{dilation}"
        inputs = [x, real(6, 1, 4), real(6), state]
        yield Row("CausalConvWithState", inputs, given, (0, 1), name=label)


def lstm_rows() -> Iterator[Row]:
    for direction, count, columns in (("forward", 1, ()), ("bidirectional", 2, (24,))):
        zeros = np.zeros((count, *columns), np.int8)
        inputs = [
            real(4, 2, 5), whole(np.int8, count, 5, 24), whole(np.int8, count, 6, 24),
            real(count, 48), None, None, None, None,
            *(x for _ in range(2) for x in (positive(count, *columns, high=0.012), zeros)),
        ]  # fmt: skip
        given = {"direction": direction, "hidden_size": 6}
        # onnxruntime rounds inputs and states to bytes.
        yield Row(
            "DynamicQuantizeLSTM", inputs, given, (0, 1, 2), name=direction,
            constants=(1, 2, 8, 9, 10, 11), rtol=0.02, atol=0.02,
        )  # fmt: skip


def image_rows() -> Iterator[Row]:
    for pads in ([0, 0, 0, 0], [1, 0, 1, 1]):
        inputs = [real(1, 3, 4, 4), real(3, 2, 3, 3), np.array(pads, np.int64), real(2)]
        given = {"strides": [2, 2]}
        yield Row("ConvTransposeWithDynamicPads", inputs, given, name=f"{pads}")
    for mode, padding, corners in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        given = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        grid = RNG.random((1, 3, 3, 2)).astype(np.float32) * 2.5 - np.float32(1.25)
        label = f"{mode}-{padding}-{corners}"
        yield Row("GridSample", [real(1, 2, 4, 5), grid], given, name=label, atol=1e-4)
    for mode, size in itertools.product(("bilinear", "nearest"), ((3, 4), (1, 1))):
        rois = (RNG.random((4, 4)) * 1.2 - 0.1).astype(np.float32)
        inputs = [real(2, 2, 5, 6), rois, below(2, 4, dtype=np.int32), int32(*size)]
        given = {"mode": mode, "extrapolation_value": 0.5}
        yield Row("CropAndResize", inputs, given, name=f"{mode}-{size}", constants=(3,))


def tensor_rows() -> Iterator[Row]:
    yield Row("GatherND", [real(3, 4, 5), below(3, 2, 2)], name="pairs")
    yield Row("GatherND", [real(3, 4, 5), below(6, 2, 1) - 3], name="negative")
    for k, upper in itertools.product((None, 1, -1), (0, 1)):
        diagonal = None if k is None else np.array(k, np.int64)
        yield Row("Trilu", [real(2, 4, 5), diagonal], {"upper": upper}, name=f"{k}-{upper}")
    for mode in ("constant", "edge", "reflect"):
        value = np.array([0.5], np.float32) if mode == "constant" else None
        pads = np.array([1, 0, 2, 1], np.int64)
        yield Row("Pad", [real(3, 4), pads, value], {"mode": mode}, name=mode)
    for dtype in (np.float32, np.int64, np.int16):
        ends = [np.array(n, dtype) for n in (1, 10, 2)]
        yield Row("Range", ends, name=np.dtype(dtype).name)
        yield Row("Range", [n.reshape(1) for n in ends[:2]], name=f"{np.dtype(dtype).name}-2")
    yield Row("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], {}, (0, 1, 2))
    yield Row("ExpandDims", [real(3, 4), np.array(1, np.int32)], name="1")
    yield Row("ExpandDims", [real(3, 4), np.array(-1, np.int32)], name="last")
    for axis, size, step in ((-1, 2, 1), (0, 3, 2)):
        given = {"dim": axis, "size": size, "step": step}
        yield Row("UnfoldTensor", [real(5, 6, 4)], given, name=f"{axis}")
    yield Row("Inverse", [real(2, 4, 4) + 4 * np.eye(4, dtype=np.float32)])
    for metric in ("euclidean", "sqeuclidean"):
        yield Row("CDist", [real(4, 5), real(6, 5)], {"metric": metric}, name=metric)
    for size in (1, 2, 3):
        inputs = [below(4, 3, 12), real(3, 6)]
        yield Row("NGramRepeatBlock", inputs, {"ngram_size": size}, name=f"{size}")


ROWS = [
    *activation_rows(),
    *fused_rows(),
    *state_rows(),
    *lstm_rows(),
    *image_rows(),
    *tensor_rows(),
]
