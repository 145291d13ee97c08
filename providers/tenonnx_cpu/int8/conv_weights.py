"""Weights of convolutions of bytes, and the kernels that convolve images with them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import contiguous, empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.channels_last import channels_first, channels_last
from tenonnx_cpu.conv.layout import SPLIT_TASKS, ConvLayout
from tenonnx_cpu.int8.conv_layout import (
    PANEL_CHANNELS,
    ByteLayout,
    byte_depthwise_layout,
    bytes_layout,
)
from tenonnx_cpu.int8.product import RESULT_FORMS, ByteFinish
from tenonnx_cpu.int8.quantized_values import BYTE_DTYPES
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import worker_floats
from tenonnx_cpu.kernel_selection import NDArray, Site

CONV = JitKernel("int8.conv", "conv_int8")
DEPTHWISE = JitKernel("int8.depthwise", "byte_depthwise")

VECTOR_LANES = cpu().lanes
NO_ZERO = frozen(np.zeros(1, np.int32))


def _are_bytes_of_kernels(array: NDArray) -> bool:
    """Return whether an array may be the weights of a convolution of lines or images in bytes."""
    return array.dtype in BYTE_DTYPES and array.size > 0 and array.ndim in (3, 4)


@cacheable
@dataclass(frozen=True)
class ByteWeights:
    """Constant weights, and how windows move.

    Attributes:
        attributes: The convolution's.
        shape: Theirs.
        packed: As the kernel takes them, flat.
        sums: The sum of every row's signed bytes; less its zero point, if every channel is by
            itself.
        fits: Of every panel, whether the sums of pairs of products fit int16.
        zeros: The zero point, int32, or one per row, from where bytes are signed.
        alone: Whether every channel is by itself.
        threads: How many to use at most.
    """

    attributes: Attributes
    shape: tuple[int, ...]
    packed: NDArray
    sums: NDArray
    fits: NDArray
    zeros: NDArray
    alone: bool
    threads: int
    _layouts: dict[ByteLayout, ConvLayout | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls, attributes: Attributes, site: Site, position: int, zero: int, threads: int
    ) -> ByteWeights | None:
        """Return the weights of a node if a kernel takes them; have it compiled.

        Args:
            attributes: The convolution's.
            site: Where the weights are.
            position: Of the weights among its inputs.
            zero: Of their zero point.
            threads: How many to use at most.
        """
        array, given = site.constant(position), site.constant(zero)
        inputs, group = site.node.inputs, attributes.group
        if array is None or not _are_bytes_of_kernels(array):
            return None
        if given is None and zero < len(inputs) and inputs[zero] is not None:
            return None
        if len(array) % group or (given is not None and given.size not in (1, len(array))):
            return None
        middle = 128 if array.dtype == np.uint8 else 0
        origin = np.zeros(1, np.int32) if given is None else given.reshape(-1).astype(np.int32)
        zeros = frozen(origin - np.int32(middle))
        if alone := array.shape[1] == 1 and len(array) == group > 1:
            DEPTHWISE.request()
            positions = (position,) if given is None else (position, zero)
            name = f"1:{VECTOR_LANES}"
            packed = site.derived(
                f"byte-words:{name}", positions, lambda: weight_words(array, zeros)
            )
            sums = site.derived(
                f"byte-words-sums:{name}", positions, lambda: word_sums(packed, len(array))
            )
            fits = site.derived(
                f"byte-words-fit:{int(cpu().pairs)}:{name}", positions, lambda: pairs_fit(packed)
            )
            zeros = NO_ZERO
        else:
            SPLIT_TASKS.request()
            CONV.request()
            adjacent = (attributes.dilations or (1,))[-1] == 1 or array.shape[-1] == 1
            name = f"{group}:{int(adjacent)}:{PANEL_CHANNELS}"
            packed = site.derived(
                f"byte-panels:1:{name}", (position,), lambda: weight_panels(array, group, adjacent)
            )
            sums = site.derived(f"byte-sums:1:{name}", (position,), lambda: row_sums(array))
            fits = site.derived(
                f"byte-fit:{int(cpu().pairs)}:{name}", (position,), lambda: pairs_fit(packed)
            )
        flat = packed.reshape(-1)
        return cls(attributes, array.shape, flat, sums, fits, zeros, alone, threads)

    @property
    def rows(self) -> int:
        """The number of channels of the result."""
        return self.shape[0]

    def launch(self, x: NDArray, origin: NDArray, finish: ByteFinish) -> Launch | None:
        """Return what computes the convolution of an image of bytes.

        Args:
            x: uint8 or int8.
            origin: Its zero point, one of the same type.
            finish: The conversion of sums.

        Returns:
            ``None`` if the kernel is not ready or does not take this image.
        """
        run = (DEPTHWISE if self.alone else CONV).run
        if run is None or x.dtype not in BYTE_DTYPES or x.ndim != len(self.shape):
            return None
        seen = channels_last(x)
        last = seen.flags.c_contiguous or x.strides[1] == 1
        seen = contiguous(seen if last else x)
        signed = x.dtype == np.int8
        shape = x.shape if x.ndim == 4 else (*x.shape[:2], 1, x.shape[2])
        cut = self._layout(x.shape, ByteLayout(shape, last, signed))
        if cut is None:
            return None
        size = cut.output[2:] if x.ndim == 4 else cut.output[3:]
        y = empty((x.shape[0], *size, self.rows), finish.dtype)
        room = worker_floats(cut.floats, cut.threads).view(np.uint8)
        arguments = (
            seen.view(np.uint8).reshape(-1), self.packed, self.fits, y.view(np.uint8).reshape(-1),
            origin.view(np.uint8), 128 if signed else 0,
            self.sums, self.zeros, finish.extra, finish.factor, finish.summand,
            RESULT_FORMS[finish.dtype], finish.low, finish.high, finish.zero,
            cut.numbers, cut.offsets, room, cut.threads,
        )  # fmt: skip
        return Launch(run, arguments, channels_first(y))

    def _layout(self, shape: tuple[int, ...], form: ByteLayout) -> ConvLayout | None:
        """Return how to cut the work for an image; ``None`` if it does not fit."""
        if form not in self._layouts:
            if len(self._layouts) > 64:
                self._layouts.clear()
            windows = self.attributes.windows(shape, self.shape)
            cut = None
            if windows is not None and self.alone:
                fours = self.packed.size // (4 * -(-self.rows // VECTOR_LANES) * VECTOR_LANES)
                cut = byte_depthwise_layout(form, windows, fours, self.threads)
            elif windows is not None:
                cut = bytes_layout(form, self.rows, self.attributes.group, windows, self.threads)
            self._layouts[form] = cut
        return self._layouts[form]


def signed(array: NDArray) -> NDArray:
    """Return bytes as int8, unsigned ones 128 less."""
    return (array ^ 128).view(np.int8) if array.dtype == np.uint8 else array


def weight_panels(array: NDArray, group: int, adjacent: bool) -> NDArray:
    """Return weights ``(K, C, *)`` as ``(group, panels, fours, PANEL, 4)``, int8.

    Args:
        array: The weights.
        group: How many groups their rows are.
        adjacent: Whether taps of a line are side by side in an image.
    """
    rows, channels, *kernel = array.shape
    rows //= group
    taps = channels * (kernel[-1] if adjacent else 1)
    runs = np.moveaxis(signed(array), 1, -1).reshape(group, rows, -1, taps)
    panels = -(-rows // PANEL_CHANNELS)
    made = np.zeros((group, panels * PANEL_CHANNELS, runs.shape[2], -(-taps // 4) * 4), np.int8)
    made[:, :rows, :, :taps] = runs
    fours = made.view(np.int32).reshape(
        group, panels, PANEL_CHANNELS, -1
    )  # four bytes stay together
    fours = np.ascontiguousarray(fours.transpose(0, 1, 3, 2))
    return fours.view(np.int8).reshape(*fours.shape, 4)


def row_sums(array: NDArray) -> NDArray:
    """Return the sum of every row of weights ``(K, C, *)``, as signed bytes."""
    sums: NDArray = array.reshape(len(array), -1).sum(axis=1, dtype=np.int32)
    return sums - np.int32(128 * (array.size // len(array))) if array.dtype == np.uint8 else sums


def word_sums(packed: NDArray, rows: int) -> NDArray:
    """Return the sum of every row of what ``weight_words`` returned for so many rows."""
    sums: NDArray = packed.sum(axis=(1, 3), dtype=np.int32).reshape(-1)
    return sums[:rows]


def pairs_fit(packed: NDArray) -> NDArray:
    """Return, for every panel of packed weights, what ``see_pairs`` says of such panels."""
    panels = packed.reshape(-1, *packed.shape[-3:])
    if not cpu().pairs:
        return np.zeros(len(panels), np.uint8)
    even, odd = panels[..., ::2], panels[..., 1::2]
    most, least = (
        np.add(limit(even, 0), limit(odd, 0), dtype=np.int16) for limit in (np.maximum, np.minimum)
    )
    axes = (1, 2, 3)
    fits: NDArray = (most.max(axes, initial=0) <= 128) & (least.min(axes, initial=0) >= -128)
    return np.asarray(fits, np.uint8)


def weight_words(array: NDArray, zeros: NDArray) -> NDArray:
    """Return weights ``(K, 1, *)`` less their zero points as ``(panels, fours, lanes, 4)``, int8.

    Differences that a byte does not hold become several, whose sum they are.

    Args:
        array: The weights.
        zeros: The zero point, or one per row, from where bytes are signed.
    """
    exact = signed(array).reshape(len(array), -1).astype(np.int32) - zeros.reshape(-1, 1)
    exact = np.pad(exact, ((0, -len(exact) % VECTOR_LANES), (0, -exact.shape[1] % 4)))
    parts: list[NDArray] = []
    while not parts or exact.any():
        near = np.clip(exact, -128, 127).astype(np.int8)
        parts.append(near.reshape(-1, VECTOR_LANES, near.shape[1] // 4, 4))
        exact -= near
    return np.ascontiguousarray(np.concatenate(parts, axis=2).transpose(0, 2, 1, 3))
