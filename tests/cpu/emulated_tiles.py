"""AMX's tiles in numpy, for the kernels' LLVM code on processors that have none.

Calls of the instructions become calls of functions here, from Intel's description of them; a tile
that is used otherwise than it is configured is an error. AVX512-BF16's product becomes a function
of LLVM's, on any x86.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
from llvmlite import ir

NUMBER, ADDRESS, SIZE = ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64

SIGNATURES = {
    "ldtilecfg": (ADDRESS,),
    "tilerelease": (),
    "tilezero": (NUMBER,),
    "tileloadd64": (NUMBER, ADDRESS, SIZE),
    "tilestored64": (NUMBER, ADDRESS, SIZE),
    "tdpbusd": (NUMBER, NUMBER, NUMBER),
    "tdpbf16ps": (NUMBER, NUMBER, NUMBER),
}

PRODUCT = "llvm.x86.avx512bf16.dpbf16ps.512"
EMULATED_PRODUCT = """
define <16 x float> @emulated.dpbf16ps(<16 x float> %sums, <32 x bfloat> %x, <32 x bfloat> %y) {
  %xs = bitcast <32 x bfloat> %x to <16 x i32>
  %ys = bitcast <32 x bfloat> %y to <16 x i32>
  %x0 = shl <16 x i32> %xs, splat (i32 16)
  %y0 = shl <16 x i32> %ys, splat (i32 16)
  %x1 = and <16 x i32> %xs, splat (i32 -65536)
  %y1 = and <16 x i32> %ys, splat (i32 -65536)
  %fx0 = bitcast <16 x i32> %x0 to <16 x float>
  %fy0 = bitcast <16 x i32> %y0 to <16 x float>
  %fx1 = bitcast <16 x i32> %x1 to <16 x float>
  %fy1 = bitcast <16 x i32> %y1 to <16 x float>
  %z1 = fmul <16 x float> %fx1, %fy1
  %z0 = fmul <16 x float> %fx0, %fy0
  %s1 = fadd <16 x float> %sums, %z1
  %s0 = fadd <16 x float> %s1, %z0
  ret <16 x float> %s0
}
"""
"""The sum of two products of bfloat16 in each lane: those of the upper halves are added first."""


class Tiles:
    """The tiles of one thread.

    Attributes:
        errors: What was wrong; a callback cannot raise.
    """

    def __init__(self) -> None:
        self.errors: list[str] = []
        self._shapes: list[tuple[int, int]] = []
        self._tiles: dict[int, Any] = {}
        self._kept: list[Any] = []
        for name, kinds in SIGNATURES.items():
            called = ctypes.CFUNCTYPE(None, *kinds)(self._guarded(getattr(self, f"_{name}")))
            self._kept.append(called)
            place = ctypes.cast(called, ctypes.c_void_p).value
            llvm.add_symbol(f"emulated.{name}", place)

    def compiled(self, functions: Sequence[Any], *kinds: Any) -> Callable[..., Any]:
        """Return the first of some shared functions, which may call the others."""
        module = ir.Module()
        for function in functions:
            function.define(module)
        text = str(module)
        for name in SIGNATURES:
            text = text.replace(f"llvm.x86.{name}", f"emulated.{name}")
        if PRODUCT in text:
            text = re.sub(f"^declare .*{PRODUCT}.*$", EMULATED_PRODUCT, text, flags=re.MULTILINE)
            text = text.replace(PRODUCT, "emulated.dpbf16ps")
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        engine.finalize_object()
        self._kept.append(engine)
        address = engine.get_function_address(functions[0].name)
        made: Callable[..., Any] = ctypes.CFUNCTYPE(None, *kinds)(address)
        return made

    def _guarded(self, function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            try:
                function(*arguments)
            except Exception as error:
                self.errors.append(f"{function.__name__}: {error!r}")

        return call

    def _ldtilecfg(self, place: int) -> None:
        memory = ctypes.string_at(place, 64)
        assert memory[0] == 1, "the palette"
        widths = np.frombuffer(memory, np.uint16, 8, 16)
        heights = np.frombuffer(memory, np.uint8, 8, 48)
        assert heights.max() <= 16
        assert widths.max() <= 64
        self._shapes = [(int(h), int(w)) for h, w in zip(heights, widths, strict=True)]
        self._tiles.clear()

    def _tilerelease(self) -> None:
        self._shapes = []

    def _tilezero(self, number: int) -> None:
        self._tiles[number] = np.zeros(self._shapes[number], np.uint8)

    def _tileloadd64(self, number: int, place: int, stride: int) -> None:
        rows, width = self._shapes[number]
        lines = [ctypes.string_at(place + row * stride, width) for row in range(rows)]
        self._tiles[number] = np.frombuffer(b"".join(lines), np.uint8).reshape(rows, width)

    def _tilestored64(self, number: int, place: int, stride: int) -> None:
        for row, line in enumerate(self._tiles[number]):
            ctypes.memmove(place + row * stride, line.tobytes(), line.size)

    def _tdpbusd(self, c: int, a: int, b: int) -> None:
        self._multiply(c, a, b, np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.int32))

    def _tdpbf16ps(self, c: int, a: int, b: int) -> None:
        kind = np.dtype(ml_dtypes.bfloat16)
        self._multiply(c, a, b, kind, kind, np.dtype(np.float32))

    def _multiply(self, c: int, a: int, b: int, left: Any, right: Any, sums: Any) -> None:
        x, y, z = (np.ascontiguousarray(self._tiles[each]) for each in (a, b, c))
        (rows, row_bytes), (words, width) = x.shape, y.shape
        assert row_bytes == 4 * words, "a row of A has a word for each row of B"
        assert z.shape == (rows, width)
        each = 4 // left.itemsize
        wide = np.float32 if sums == np.float32 else np.int32
        x = x.view(left).astype(wide)
        y = y.view(right).reshape(words, width // 4, each).astype(wide)
        y = y.transpose(0, 2, 1).reshape(words * each, -1)
        self._tiles[c] = (z.view(sums) + x @ y).astype(sums).view(np.uint8)
