from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from draw import angles, below, int32, positive, real, whole
from rows import Row

HEADS, GROUPS, SIZE = 4, 2, 16
FEW, SMALL = 2, 6


def filled(totals: list[int], length: int, total: int) -> Callable[[int, Any], Any]:
    """The places where the answers for a ragged batch are specified."""

    def known(output: int, answer: Any) -> Any:
        last = np.array(totals)
        if output in (1, 2):
            return (np.arange(answer.shape[2]) < last[:, None])[:, None, :, None]
        # The queries of a padded prompt that are padding have no meaning.
        count = last if length == total else np.full_like(last, length)
        rows = np.arange(length) < count[:, None]
        return rows[:, None, :, None] if output == 3 else rows[:, :, None]

    return known


def group_query(
    batch: int,
    length: int,
    totals: list[int],
    room: int | None = None,
    *,
    packed: bool = False,
    pairs: int = 0,
    position_ids: Any = None,
    bias: Any = None,
    sinks: Any = None,
    caches: tuple[Any, Any] | None = None,
    scales: tuple[Any, Any] = (None, None),
    dtype: Any = np.float32,
    outputs: tuple[int, ...] = (0, 1, 2),
    **attributes: Any,
) -> Row:
    width = HEADS + 2 * GROUPS if packed else HEADS
    past = caches or (None, None)
    if room is not None and caches is None:
        past = tuple(real(batch, GROUPS, room, SIZE, dtype=dtype) for _ in range(2))
    cos, sin = angles(24, pairs, dtype) if pairs else (None, None)
    inputs = [
        real(batch, length, width * SIZE, dtype=dtype),
        *(
            None if packed else real(batch, length, GROUPS * SIZE, dtype=dtype)
            for _ in range(2)
        ),
        *past,
        int32(*(total - 1 for total in totals)),
        np.array(max(totals), np.int32),
        cos, sin, position_ids, bias, sinks, *scales,
    ]  # fmt: skip
    shape = f"{length}-{'x'.join(map(str, totals))}-{room}"
    name = shape + "-packed" * packed + f"-{pairs}" * bool(pairs)
    named = "-".join(f"{key}={value}" for key, value in attributes.items())
    half = dtype != np.float32
    return Row(
        "GroupQueryAttention",
        inputs,
        {"num_heads": HEADS, "kv_num_heads": GROUPS, "do_rotary": int(pairs > 0)} | attributes,
        outputs,
        name="-".join(filter(None, [name, np.dtype(dtype).name, named])),
        known=filled(totals, length, max(totals)),
        rtol=1e-2 if half else 1e-4,
        atol=1e-2 if half else 1e-5,
    )


def group_query_rows() -> Iterator[Row]:
    for packed, pairs, extra in (
        (False, 0, {}),
        (True, 0, {"softcap": 3.0}),
        (False, 8, {"local_window_size": 3}),
        (True, 8, {"smooth_softmax": 1}),
        (True, 8, {"scale": 0.3}),
        (False, 8, {"local_window_size": 2, "softcap": 2.0}),
    ):
        given: dict[str, Any] = {"packed": packed, "pairs": pairs} | extra
        yield group_query(2, 5, [5, 3], **given)
        yield group_query(2, 1, [6, 4], 5, **given)
        yield group_query(2, 1, [6, 4], 8, **given)
        yield group_query(1, 3, [7], 8, **given)
    for batch, length, totals, room in ((2, 5, [5, 3], 8), (2, 1, [6, 4], 8), (1, 3, [7], 8)):
        yield group_query(batch, length, totals, room, pairs=8, rotary_interleaved=1)
        yield group_query(batch, length, totals, room, pairs=8, dtype=np.float16)
        yield group_query(batch, length, totals, room, sinks=real(HEADS), local_window_size=2)
        bias = real(1, HEADS, length, max(totals))
        yield group_query(batch, length, totals, room, bias=bias, softcap=2.0)
        given = below(16, batch, length)
        yield group_query(batch, length, totals, room, pairs=8, position_ids=given)
    for mode in (1, 2):
        yield group_query(1, 5, [5], outputs=(0, 1, 2, 3), qk_output=mode)
        yield group_query(1, 1, [6], 8, outputs=(0, 1, 2, 3), qk_output=mode, softcap=2.0)
    yield group_query(1, 5, [5], causal=0)
    yield group_query(1, 3, [7], 8, causal=0)


def quantized_cache_rows() -> Iterator[Row]:
    for bits, kind in (
        (8, "PER_TENSOR"),
        (8, "PER_CHANNEL"),
        (4, "PER_TENSOR"),
        (4, "PER_CHANNEL"),
    ):
        shape = (1,) if kind == "PER_TENSOR" else (1, GROUPS, 1, SIZE)
        for length, total, room in ((1, 6, 5), (3, 8, 5)):
            caches = tuple(
                whole(np.int8, 1, GROUPS, room, SIZE)
                if bits == 8
                else whole(np.uint8, 1, GROUPS, room, SIZE // 2)
                for _ in range(2)
            )
            high = 0.03 if bits == 8 else 0.4
            row = group_query(
                1, length, [total], room,
                caches=(caches[0], caches[1]),
                scales=(positive(*shape, high=high), positive(*shape, high=high)),
                k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits,
            )  # fmt: skip
            # Every entry of a growing cache is specified, and bytes hold no NaN.
            yield Row(**(vars(row) | {"known": None}))


def window_rows() -> Iterator[Row]:
    for room, window in ((4, 4), (7, 4)):
        stride = room - window + 1
        for batch, length, totals in (
            (2, 1, [3, 2]),
            (2, 1, [9, 5]),
            (1, 3, [9]),
            (1, 9, [9]),
            (1, 9, [13]),
        ):
            row = group_query(
                batch, length, totals, room, pairs=8,
                bias=real(batch, 1, length, max(totals)),
                local_window_size=window, sliding_window_cache=1,
            )  # fmt: skip
            held = [t if t <= room else t - stride * -(-(t - room) // stride) for t in totals]
            known = filled(held, length, -1)
            yield Row(**(vars(row) | {"known": known, "name": f"{row.name}-{room}"}))


def masks(queries: int, keys: int) -> dict[str, Any]:
    lengths = np.array([[keys], [keys - 2]])
    return {
        "none": None,
        "ends": int32(keys, keys - 2),
        "keys": (np.arange(keys) < lengths).astype(np.int32),
        "pairs": (np.arange(keys) < lengths[:, None] - np.arange(queries)[:, None] % 2).astype(
            np.int32
        ),
    }


def multi_head_rows() -> Iterator[Row]:
    width, name = FEW * SMALL, "MultiHeadAttention"
    for kind in ("none", "ends", "keys", "pairs"):
        for unidirectional in (0, 1):
            given = {"num_heads": FEW, "unidirectional": unidirectional}
            label = f"{kind}-{unidirectional}"
            bias = real(1, FEW, 4, 4)
            inputs = [*(real(2, 4, width) for _ in range(3)), real(3 * width), masks(4, 4)[kind]]
            yield Row(name, [*inputs, bias], given, (0, 1, 2), name=f"self-{label}")
            inputs[3], inputs[4] = None, masks(4, 7)[kind]
            past = [real(2, FEW, 3, SMALL) for _ in range(2)]
            yield Row(name, [*inputs, None, *past], given, (0, 1, 2), name=f"past-{label}")
        given = {"num_heads": FEW, "scale": 0.5, "mask_filter_value": -20.0}
        mask = masks(4, 6)[kind]
        keys = [real(2, 6, width), real(2, 6, FEW * 6)]
        biases = real(2 * width + FEW * 6)
        inputs = [real(2, 4, width), *keys, biases, mask]
        yield Row(name, inputs, given, name=f"cross-{kind}")
        keys = [real(2, FEW, 6, SMALL) for _ in range(2)]
        yield Row(name, [real(2, 4, width), *keys, None, mask], given, name=f"given-{kind}")
    for indirection in (None, below(2, 1, 2, 9, dtype=np.int32)):
        inputs = [*(real(2, 1, width) for _ in range(3)), None, None, None]
        inputs += [*(real(2, FEW, 9, SMALL) for _ in range(2)), int32(5), indirection]
        label = "room" if indirection is None else "beams"
        known = filled([6, 6], 1, 6)
        yield Row(name, inputs, {"num_heads": FEW}, (0, 1, 2), name=label, known=known)


def decoder_rows() -> Iterator[Row]:
    name, width = "DecoderMaskedMultiHeadAttention", FEW * SMALL
    keys = [real(2, FEW, 5, SMALL) for _ in range(2)]
    yield Row(name, [real(2, 1, width), *keys], {"num_heads": FEW}, name="cross")
    given = {"num_heads": FEW, "past_present_share_buffer": 1}
    for beams in (False, True):
        inputs = [*(real(2, 1, width) for _ in range(3)), None, None]
        inputs += [*(real(2, FEW, 9, SMALL) for _ in range(2)), int32(5)]
        inputs += [int32(2), below(2, 1, 2, 9, dtype=np.int32)] if beams else [None, None]
        inputs.append(real(3 * width))
        yield Row(
            name, inputs, given, (0, 1, 2), name=f"{beams}", shared={5: 1, 6: 2},
            known=filled([6, 6], 1, -1),
        )  # fmt: skip


def attention_rows() -> Iterator[Row]:
    width = 3 * FEW * SMALL
    for kind in ("none", "ends", "keys", "pairs", "span"):
        for unidirectional in (0, 1):
            for past in (0, 2):
                total = 4 + past
                mask = int32(total, total - 1, 0, 0) if kind == "span" else masks(4, total)[kind]
                given = {"num_heads": FEW, "unidirectional": unidirectional}
                old = real(2, 2, FEW, past, SMALL) if past else None
                inputs = [real(2, 4, 6), real(6, width), real(width), mask, old]
                bias = real(1, FEW, 4, 4) if kind in ("none", "keys") and not past else None
                outputs = (0, 1) if past else (0,)
                label = f"{kind}-{unidirectional}-{past}"
                yield Row("Attention", [*inputs, bias], given, outputs, name=label)
    sizes = [FEW * SMALL, FEW * SMALL, FEW * 6]
    given = {"num_heads": FEW, "qkv_hidden_sizes": sizes}
    yield Row("Attention", [real(2, 4, 6), real(6, sum(sizes)), real(sum(sizes))], given)
    for weight in (np.uint8, np.int8):
        for count in ((), (width,)):
            for past in (0, 2):
                mask = masks(4, 4 + past)["keys"]
                old = real(2, 2, FEW, past, SMALL) if past else None
                inputs = [
                    whole(np.uint8, 2, 4, 6), whole(weight, 6, width), real(width), positive(),
                    positive(*count), mask, whole(np.uint8), whole(weight, *count), old,
                ]  # fmt: skip
                given = {"num_heads": FEW, "unidirectional": 1}
                outputs = (0, 1) if past else (0,)
                label = f"{np.dtype(weight).name}-{len(count)}-{past}"
                yield Row("QAttention", inputs, given, outputs, name=label, constants=(1,))


def sparse_rows() -> Iterator[Row]:
    starts = np.array([[0, 1, 3, 5], [0, 1, 3, 6]], np.int32)
    columns = np.array([[0, 0, 1, 1, 2, -1], [0, 0, 1, 0, 1, 2]], np.int32)
    for length, total, packed, pairs in (
        (34, 34, False, 0), (1, 34, True, 8), (3, 40, False, 8), (48, 48, True, 0),
    ):  # fmt: skip
        width = (HEADS + 2 * GROUPS if packed else HEADS) * SIZE
        keys = [None if packed else real(1, length, GROUPS * SIZE) for _ in range(2)]
        caches = [real(1, GROUPS, 48, SIZE) for _ in range(2)]
        cos, sin = angles(48, pairs) if pairs else (None, None)
        inputs = [
            real(1, length, width), *keys, *caches, starts, columns, int32(total), int32(total),
            cos, sin,
        ]  # fmt: skip
        given = {
            "num_heads": HEADS, "kv_num_heads": GROUPS, "sparse_block_size": 16,
            "do_rotary": int(pairs > 0),
        }  # fmt: skip
        yield Row(
            "SparseAttention", inputs, given, (0, 1, 2), name=f"{length}-{total}",
            shared={3: 1, 4: 2}, known=filled([total], length, -1),
        )  # fmt: skip


ROWS = [
    *group_query_rows(),
    *quantized_cache_rows(),
    *window_rows(),
    *multi_head_rows(),
    *decoder_rows(),
    *attention_rows(),
    *sparse_rows(),
]
