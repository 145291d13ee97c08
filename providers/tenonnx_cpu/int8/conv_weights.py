"""Weights of convolutions of bytes, and the kernels that convolve images with them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.conv.attributes import Attributes
from tenonnx_cpu.conv.layout import Layout
from tenonnx_cpu.conv.tail import per_channel
from tenonnx_cpu.int8.codes import BYTES
from tenonnx_cpu.int8.conv_layout import FIELDS, bytes_layout
from tenonnx_cpu.int8.depthwise import (
    STRIDES,
    byte_depthwise_layout,
    fits_depthwise,
    weight_words,
)
from tenonnx_cpu.int8.product import FORMS, I32, Finish
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats, scratch
from tenonnx_cpu.recording.launch import Launch, done
from tenonnx_cpu.specialise import NDArray, Site

CONV = JitKernel("int8.conv", "conv_int8")
COMMON = FIELDS.index("common")
DEPTHWISE = JitKernel("int8.depthwise", "byte_depthwise")
FINISH = JitKernel("int8.finishing", "finish")


@dataclass(frozen=True)
class ByteWeights:
    """Constant weights, and how windows move.

    Attributes:
        attributes: The convolution's.
        array: int8 or uint8, where they are mapped.
        zeros: The zero point, int32, or one per row.
        threads: How many to use at most.
        words: For ``byte_depthwise``, if every channel is by itself.
        totalled: What ``with_totals`` makes of others that are unsigned or have a zero point.
    """

    attributes: Attributes
    array: NDArray
    zeros: NDArray
    threads: int
    words: NDArray | None = None
    totalled: NDArray | None = None
    _layouts: dict[tuple[int, ...], Layout | None] = field(default_factory=dict)

    @classmethod
    def of(
        cls, attributes: Attributes, site: Site, position: int, zero: int | None, threads: int
    ) -> ByteWeights | None:
        """Returns the weights of a node if a kernel takes them; has it compiled.

        Args:
            attributes: The convolution's.
            site: Where the weights are.
            position: Of the weights among its inputs.
            zero: Of their zero point.
            threads: How many to use at most.
        """
        array = site.constant(position)
        given = None if zero is None else site.constant(zero)
        inputs = site.node.inputs
        if array is None or array.dtype not in BYTES or not array.size or array.ndim not in (3, 4):
            return None
        if given is None and zero is not None and zero < len(inputs) and inputs[zero] is not None:
            return None
        zeros = np.zeros(1, np.int32) if given is None else given.reshape(-1).astype(np.int32)
        if not array.flags.c_contiguous or zeros.size not in (1, array.shape[0]):
            return None
        if array.shape[1] == 1 and attributes.group > 1 and may_slide(attributes):
            positions = (position,) if given is None or zero is None else (position, zero)
            words = site.derived("byte-words", positions, lambda: weight_words(array, zeros))
            DEPTHWISE.request()
            return cls(attributes, array, zeros, threads, words)
        if len(array) % attributes.group:
            return None
        CONV.request()
        if array.dtype == np.int8 and not zeros.any():
            return cls(attributes, array, zeros, threads)
        FINISH.request()
        name, group = f"byte-totals:{attributes.group}", attributes.group
        totalled = site.derived(name, (position,), lambda: with_totals(array, group))
        return cls(attributes, array, zeros, threads, totalled=totalled)

    @property
    def rows(self) -> int:
        """How many channels the result has."""
        return int(self.array.shape[0])

    @functools.cached_property
    def sums(self) -> NDArray:
        """The sum of every row, less its zero point."""
        flat = self.array.reshape(self.rows, -1)
        every: NDArray = flat.sum(axis=1, dtype=np.int64)
        return every - flat.shape[1] * self.zeros.astype(np.int64)

    def extra(self, origin: int, bias: NDArray | None = None) -> NDArray:
        """Returns what sums begin with.

        Args:
            origin: The image's zero point, once its bytes are unsigned.
            bias: An int32 for every row.
        """
        start = -origin * self.sums
        return (start if bias is None else start + bias).astype(np.int32)

    @functools.cached_property
    def _middle(self) -> NDArray:
        """How much more every row's weights are than those that totals are added to."""
        middle = (128 if self.array.dtype == np.uint8 else 0) - self.zeros
        return np.ascontiguousarray(np.broadcast_to(middle, self.rows), np.int32)

    @functools.cached_property
    def _flat(self) -> NDArray:
        """What the kernel takes, the same array in every call."""
        given = (self.words, self.totalled, self.array)
        return next(array for array in given if array is not None).reshape(-1)

    def convolve(self, x: NDArray, origin: int, finish: Finish) -> NDArray | None:
        """Returns the convolution of an image of bytes, as ``launch`` takes it."""
        return done(self.launch(x, origin, finish))  # type: ignore[no-any-return]  # it makes no other

    def launch(self, x: NDArray, origin: int, finish: Finish) -> Any:
        """Returns what computes the convolution of an image of bytes, or that.

        Args:
            x: uint8 or int8.
            origin: Its zero point, once its bytes are unsigned.
            finish: What becomes of sums: every kind of number for every row.

        Returns:
            ``None`` if the kernel is not ready or does not take this image.
        """
        kernel = CONV if self.words is None else DEPTHWISE
        run = kernel.run
        if run is None or not x.flags.c_contiguous or x.dtype not in BYTES:
            return None
        if not 0 <= origin < 256 or (cut := self.layout(x.shape)) is None:
            return None
        size = cut.output[2:] if x.ndim == 4 else cut.output[3:]
        y: NDArray = empty((x.shape[0], self.rows, *size), finish.dtype)
        if self.totalled is None:
            return Launch(run, self._given(x, y, origin, finish, cut), y)
        last = FINISH.run
        if last is None:
            return None
        sums = empty(cut.output, I32)
        run(*self._given(x, sums, origin, self._unfinished(origin, finish), cut))
        last(
            sums.reshape(-1), y.view(np.uint8).reshape(-1), self._middle, finish.factor,
            finish.summand, FORMS[finish.dtype], finish.low, finish.high, finish.zero,
            self.rows // self.attributes.group, cut.output[2] * cut.output[3], self.threads,
        )  # fmt: skip
        return y

    def _given(
        self, x: NDArray, y: NDArray, origin: int, finish: Finish, cut: Layout
    ) -> tuple[Any, ...]:
        """Returns the kernel's arguments."""
        flip = 128 if x.dtype == np.int8 else 0
        given = (
            x.view(np.uint8).reshape(-1), self._flat, y.reshape(-1).view(np.uint8),
            finish.extra, finish.factor, finish.summand, FORMS[finish.dtype],
            finish.low, finish.high, finish.zero, origin, flip, cut.numbers, cut.offsets,
        )  # fmt: skip
        count = cut.floats * cut.threads
        if self.words is not None:
            return (*given, scratch(4 * count), cut.threads)
        common = int(cut.numbers[COMMON])
        return (*given, cut.planes, floats(count + common // 4), cut.threads)

    def _unfinished(self, origin: int, finish: Finish) -> Finish:
        """Returns what becomes of sums, and of totals, that are not complete."""
        group, seen = self.attributes.group, origin * (self.array.size // self.rows)
        own = (finish.extra + seen * self._middle).reshape(group, -1)
        extra = np.concatenate([own, np.full((group, 1), -seen)], axis=1)
        factor, summand = per_channel(extra.size)
        return Finish(I32, factor, summand, extra.astype(np.int32).reshape(-1))

    def layout(self, shape: tuple[int, ...]) -> Layout | None:
        """Returns how to cut the work for an image of a shape; ``None`` if it does not fit."""
        if shape not in self._layouts:
            windows = self.attributes.windows(shape, self.array.shape)
            self._layouts[shape] = None if windows is None else self._cut(shape, windows)
        return self._layouts[shape]

    def _cut(self, shape: tuple[int, ...], windows: Windows) -> Layout | None:
        image, threads = (*shape[:2], *windows.size), self.threads
        if self.words is None:
            rows = len(self.array if self.totalled is None else self.totalled)
            return bytes_layout(image, rows, self.attributes.group, windows, threads)
        if not fits_depthwise(windows):
            return None
        return byte_depthwise_layout(image, self.rows, windows, self.words.shape[1], threads)


def may_slide(attributes: Attributes) -> bool:
    """Says whether windows move along a line as ``byte_depthwise`` has them."""
    stride, step = ((numbers or (1,))[-1] for numbers in (attributes.strides, attributes.dilations))
    return stride in STRIDES and step == 1


def with_totals(array: NDArray, group: int) -> NDArray:
    """Returns weights as int8, and after every group's rows one of ones.

    What that makes is the total of what a window sees; unsigned weights are 128 less.
    """
    rows, *rest = array.shape
    signed = (array ^ 128).view(np.int8) if array.dtype == np.uint8 else array
    signed = signed.reshape(group, rows // group, *rest)
    made = np.concatenate([signed, np.ones((group, 1, *rest), np.int8)], axis=1)
    return made.reshape(rows + group, *rest)
