"""Weights of convolutions of bytes, and the kernels that convolve images with them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenonnx_array.windows import Windows
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.conv.conv import Attributes
from tenonnx_cpu.conv.layout import Layout
from tenonnx_cpu.int8.codes import BYTES
from tenonnx_cpu.int8.conv_layout import FIELDS, bytes_layout
from tenonnx_cpu.int8.depthwise import (
    STRIDES,
    byte_depthwise_layout,
    fits_depthwise,
    weight_words,
)
from tenonnx_cpu.int8.product import FORMS, GEMM, Finish, byte_product
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
    """

    attributes: Attributes
    array: NDArray
    zeros: NDArray
    threads: int
    words: NDArray | None = None
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
        if array.dtype == np.int8 and not zeros.any():
            CONV.request()
            return cls(attributes, array, zeros, threads)
        if attributes.group > 1 or zeros.size > 1:
            return None
        GEMM.request()
        FINISH.request()
        return cls(attributes, array, zeros, threads)

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
    def _flat(self) -> NDArray:
        """What the kernel takes, the same array in every call."""
        return (self.array if self.words is None else self.words).reshape(-1)

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
        if self.words is None and (self.array.dtype != np.int8 or self.zeros.any()):
            return self._multiply(x, origin, finish)
        kernel = CONV if self.words is None else DEPTHWISE
        run = kernel.run
        if run is None or not x.flags.c_contiguous or x.dtype not in BYTES:
            return None
        if not 0 <= origin < 256 or (cut := self.layout(x.shape)) is None:
            return None
        shape = cut.output if x.ndim == 4 else (*cut.output[:2], cut.output[3])
        y: NDArray = empty(shape, finish.dtype)
        flip = 128 if x.dtype == np.int8 else 0
        given: tuple[Any, ...] = (
            x.view(np.uint8).reshape(-1), self._flat, y.reshape(-1).view(np.uint8),
            finish.extra, finish.factor, finish.summand, FORMS[finish.dtype],
            finish.low, finish.high, finish.zero, origin, flip, cut.numbers, cut.offsets,
        )  # fmt: skip
        count = cut.floats * cut.threads
        if self.words is None:
            common = int(cut.numbers[COMMON])
            given = (*given, cut.planes, floats(count + common // 4), cut.threads)
        else:
            given = (*given, scratch(4 * count), cut.threads)
        return Launch(run, given, y)

    def _multiply(self, x: NDArray, origin: int, finish: Finish) -> NDArray | None:
        """Convolves with weights whose zero point is not 0: a product with what windows see."""
        windows = self.attributes.windows(x.shape, self.array.shape)
        if windows is None:
            return None
        zero = origin - (128 if x.dtype == np.int8 else 0)
        columns = _seen(x, windows, zero)
        middle = -128 if x.dtype == np.uint8 else 0
        a = self.array.reshape(1, self.rows, -1)
        b_zeros = np.full(1, zero + middle, np.int32)
        sums = byte_product(a, self.zeros.astype(a.dtype), columns, b_zeros, self.threads)
        if sums is None:
            return None
        # The kernel has taken the zero points into account already.
        sums += (finish.extra - self.extra(origin))[:, None]
        shape = (*sums.shape[:2], *windows.output[4 - x.ndim :])
        return finished(sums, finish, self.threads).reshape(shape)

    def layout(self, shape: tuple[int, ...]) -> Layout | None:
        """Returns how to cut the work for an image of a shape; ``None`` if it does not fit."""
        if shape not in self._layouts:
            windows = self.attributes.windows(shape, self.array.shape)
            self._layouts[shape] = None if windows is None else self._cut(shape, windows)
        return self._layouts[shape]

    def _cut(self, shape: tuple[int, ...], windows: Windows) -> Layout | None:
        image, threads = (*shape[:2], *windows.size), self.threads
        if self.words is None:
            return bytes_layout(image, self.rows, self.attributes.group, windows, threads)
        if not fits_depthwise(windows):
            return None
        return byte_depthwise_layout(image, self.rows, windows, self.words.shape[1], threads)


def may_slide(attributes: Attributes) -> bool:
    """Says whether windows move along a line as ``byte_depthwise`` has them."""
    stride, step = ((numbers or (1,))[-1] for numbers in (attributes.strides, attributes.dilations))
    return stride in STRIDES and step == 1


def _seen(x: NDArray, windows: Windows, zero: int) -> NDArray:
    """Returns what windows see of an image: a column each, ``(N, C * taps, windows)``."""
    image = x.reshape(*x.shape[:2], *windows.size)
    if math.prod((*windows.kernel, *windows.strides)) == 1 and not windows.is_padded:
        return image.reshape(*x.shape[:2], math.prod(windows.size))
    wide = [(0, 0), (0, 0), *zip(windows.begins, windows.ends, strict=True)]
    image = np.pad(image, wide, constant_values=zero)
    (down, across), (step_y, step_x) = image.strides[2:], windows.dilations
    seen = np.lib.stride_tricks.as_strided(
        image,
        (*image.shape[:2], *windows.kernel, *windows.output),
        (
            *image.strides[:2], down * step_y, across * step_x,
            down * windows.strides[0], across * windows.strides[1],
        ),
        writeable=False,
    )  # fmt: skip
    return seen.reshape(x.shape[0], math.prod(seen.shape[1:4]), math.prod(windows.output))


def finished(sums: NDArray, finish: Finish, threads: int) -> NDArray:
    """Returns what becomes of sums, row by row."""
    if finish.dtype == sums.dtype:
        return sums
    run = FINISH.run
    if run is not None and finish.dtype in BYTES:
        made: NDArray = empty(sums.shape, finish.dtype)
        run(
            sums.reshape(-1), made.view(np.uint8).reshape(-1), finish.factor, finish.summand,
            finish.low, finish.high, finish.zero, sums.shape[-1], threads,
        )  # fmt: skip
        return made
    y = sums.astype(np.float32)
    y *= finish.factor[:, None]
    y += finish.summand[:, None]
    y = np.clip(y, finish.low, finish.high, out=y)
    if finish.dtype not in BYTES:
        return y
    return (np.rint(y, out=y) + np.float32(finish.zero)).astype(finish.dtype)
