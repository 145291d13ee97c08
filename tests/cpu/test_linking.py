"""The linker of kernels: what a relocation says is where the code points, whatever the place."""

from __future__ import annotations

import ctypes
import platform
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

llvm: Any = pytest.importorskip("llvmlite.binding", reason="kernels need numba")
from tenonnx_cpu.jit.code import code_object, linking  # noqa: E402 - it is of no use without LLVM
from tenonnx_cpu.jit.code.linking import AARCH64, RELOCATIONS, X86_64, link  # noqa: E402
from tenonnx_cpu.jit.code.objects import Unlinkable, read  # noqa: E402

TRIPLES = {X86_64: "x86_64-unknown-linux-gnu", AARCH64: "aarch64-unknown-linux-gnu"}
MACHINES = pytest.mark.parametrize("machine", TRIPLES, ids=["x86-64", "aarch64"])

MODULE = """
@reals = internal constant [4 x double] [double 1.5, double 2.5, double -3.0, double 4.0]
@letters = internal constant [4 x i8] c"abcd"
@count = internal global i64 5
@sum = common global [3 x i64] zeroinitializer
@far = external global i64
@functions = internal constant [2 x ptr] [ptr @halve, ptr @three]
@places = internal constant [2 x ptr] [ptr @reals, ptr getelementptr (i8, ptr @reals, i64 8)]
declare i64 @triple(i64)
define i64 @halve(i64 %x) noinline {
  %y = sdiv i64 %x, 2
  ret i64 %y
}
define i64 @three(i64 %x) noinline {
  %y = call i64 @triple(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
define i64 @tail(i64 %x) {
  %y = tail call i64 @triple(i64 %x)
  ret i64 %y
}
define i64 @jump(i64 %i) {
  %p = getelementptr [2 x ptr], ptr @functions, i64 0, i64 %i
  %f = load ptr, ptr %p
  %y = call i64 %f(i64 8)
  ret i64 %y
}
define i64 @both(i64 %x) {
  %a = call i64 @halve(i64 %x)
  %b = call i64 @three(i64 %a)
  ret i64 %b
}
define i64 @real(i64 %i) {
  %p = getelementptr [4 x double], ptr @reals, i64 0, i64 %i
  %v = load double, ptr %p
  %w = fmul double %v, 1.0625e1
  %n = fptosi double %w to i64
  ret i64 %n
}
define i64 @pointed(i64 %i) {
  %p = getelementptr [2 x ptr], ptr @places, i64 0, i64 %i
  %q = load ptr, ptr %p
  %v = load double, ptr %q
  %n = fptosi double %v to i64
  ret i64 %n
}
define i64 @letter(i64 %i) {
  %p = getelementptr [4 x i8], ptr @letters, i64 0, i64 %i
  %v = load i8, ptr %p
  %n = zext i8 %v to i64
  ret i64 %n
}
define i64 @add(i64 %x) {
  %a = load i64, ptr @count
  %b = add i64 %a, %x
  store i64 %b, ptr @count
  %p = getelementptr [3 x i64], ptr @sum, i64 0, i64 2
  %c = load i64, ptr %p
  %d = add i64 %c, %b
  store i64 %d, ptr %p
  ret i64 %d
}
define i64 @see(i64 %x) {
  %v = load i64, ptr @far
  %r = add i64 %v, %x
  ret i64 %r
}
define i64 @choose(i64 %x) {
  switch i64 %x, label %other [
    i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e
  ]
a:
  ret i64 17
b:
  %half = call i64 @halve(i64 99)
  ret i64 %half
c:
  ret i64 %x
d:
  %more = call i64 @three(i64 4)
  ret i64 %more
e:
  %found = load i64, ptr @far
  ret i64 %found
other:
  ret i64 -1
}
"""
ANSWERS: dict[str, dict[int, int]] = {
    "halve": {9: 4},
    "three": {5: 16},
    "tail": {5: 15},
    "jump": {0: 4, 1: 25},
    "both": {10: 16},
    "real": {0: 15, 1: 26, 2: -31, 3: 42},
    "pointed": {0: 1, 1: 2},
    "letter": {0: ord("a"), 3: ord("d")},
    "add": {3: 8, 1: 17},
    "see": {7: 1007},
    "choose": {0: 17, 1: 49, 2: 2, 3: 13, 4: 1000, 5: -1},
}


def compiled(machine: int, text: str, *, model: str = "small", reloc: str = "pic") -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(TRIPLES[machine])
    except RuntimeError:
        pytest.skip("this LLVM does not know the machine")
    module = llvm.parse_assembly(f'target triple = "{TRIPLES[machine]}"\n{text}')
    content: bytes = target.create_target_machine(opt=3, reloc=reloc, codemodel=model).emit_object(
        module
    )
    return content


@pytest.mark.skipif(not code_object.SUPPORTED, reason="no code is linked here")
def test_linked_code_does_what_it_says(tmp_path: Path) -> None:
    machine = {"x86_64": X86_64, "aarch64": AARCH64}[platform.machine()]
    integer = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    triple, far = integer(lambda x: 3 * x), ctypes.c_int64(1000)
    code_object.define("triple", ctypes.cast(triple, ctypes.c_void_p).value or 0)
    code_object.define("far", ctypes.addressof(far))
    content = link(compiled(machine, MODULE), ANSWERS).pack()
    path = tmp_path / "test-linked.image"
    path.write_bytes(content)
    # Of a file, and of bytes under another name: a code object's data are its own.
    for found in (
        code_object.load(path),
        code_object.place(tmp_path / "test-placed.image", content),
    ):
        for name, answers in ANSWERS.items():
            function = integer(found[name])
            assert {x: function(x) for x in answers} == answers, name


@MACHINES
def test_code_needs_no_change_when_it_is_loaded(machine: int) -> None:
    image = link(compiled(machine, MODULE), ANSWERS)
    words = [*image.inside, *(place for places in image.outside.values() for place in places)]
    assert words
    assert min(words) >= len(image.code)
    assert max(words) + 8 <= len(image.code) + len(image.data)
    assert len(set(words)) == len(words)
    assert set(image.outside) == {"triple", "far"}


@MACHINES
def test_pieces_keep_their_alignment(machine: int) -> None:
    text = "@a = internal global i8 1\n@b = internal global [4 x i64] zeroinitializer, align 64\n"
    text += "define ptr @first() {\n ret ptr @a\n}\ndefine ptr @second() {\n ret ptr @b\n}\n"
    given = read(compiled(machine, text))
    linker = linking._Linker(given)
    for number, section in given.sections.items():
        assert linker._starts[number] % section.align == 0


def test_what_is_not_position_independent_is_refused() -> None:
    text = "declare i64 @triple(i64)\ndefine i64 @f(i64 %x) {\n"
    text += "  %y = call i64 @triple(i64 %x)\n  ret i64 %y\n}\n"
    with pytest.raises(Unlinkable, match="part of the code"):
        link(compiled(X86_64, text, model="large", reloc="static"), ["f"])


@MACHINES
def test_what_is_not_known_is_refused(machine: int) -> None:
    with pytest.raises(Unlinkable, match="thread-local"):
        link(compiled(machine, "@x = thread_local global i64 5"), [])
    with pytest.raises(Unlinkable, match="has no nothing"):
        link(compiled(machine, MODULE), ["nothing"])
    with pytest.raises(Unlinkable, match="expected an ELF object"):
        link(b"MZ" + bytes(100), [])
    other = bytearray(compiled(machine, MODULE))
    struct.pack_into("<H", other, 18, 243)
    with pytest.raises(Unlinkable, match="machine 243"):
        link(bytes(other), [])


offsets = st.integers(0, 1 << 22).map(lambda n: 16 * n)


def apply(machine: int, kind: int, place: int, target: int, code: int = 0) -> int:
    """Return the instruction or number that a relocation leaves at a place."""
    page = place & ~0xFFF
    memory = bytearray(place - page + 4)
    struct.pack_into("<I", memory, place - page, code)
    RELOCATIONS[machine][kind][1](memory, place - page, target - page)
    return int.from_bytes(memory[place - page :], "little")


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@given(offsets, offsets)
@pytest.mark.parametrize("kind", [2, 4, 9, 41, 42])
def test_x86_displacements(kind: int, place: int, target: int) -> None:
    """A displacement counts from the end of its four bytes, which the addend of -4 says."""
    word = apply(X86_64, kind, place, target - 4)
    assert place + 4 + signed(word, 32) == target


LOADS = {277: 1, 278: 1, 284: 2, 285: 4, 286: 8, 299: 16}


@given(offsets, offsets)
@pytest.mark.parametrize(("low", "size"), LOADS.items())
def test_aarch64_pages_and_what_is_within(low: int, size: int, place: int, target: int) -> None:
    """ADRP gives a page's address, the instruction after it the place in it, in units of a size."""
    adrp = apply(AARCH64, 275, place, target, 0x90000000)
    pages = signed((adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3, 21)
    assert adrp & 0x9F00001F == 0x90000000
    within = apply(AARCH64, low, place + 4, target) >> 10 & 0xFFF
    assert ((place >> 12) + pages << 12) + within * size == target


@given(offsets, offsets)
@pytest.mark.parametrize("kind", [282, 283])
def test_aarch64_branches(kind: int, place: int, target: int) -> None:
    word = apply(AARCH64, kind, place, target, 0x94000000)
    assert word >> 26 == 0x94000000 >> 26
    assert place + 4 * signed(word & 0x3FFFFFF, 26) == target


@given(offsets, st.integers(0, 1 << 24).map(lambda n: 8 * n))
def test_aarch64_stubs_jump_to_what_their_slot_holds(place: int, slot: int) -> None:
    page = place & ~0xFFF
    memory = bytearray(place - page + 16)
    linking._write_stub(AARCH64, memory, place - page, slot - page)
    adrp, load, branch = struct.unpack_from("<III", memory, place - page)
    pages = signed((adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3, 21)
    assert ((place >> 12) + pages << 12) + (load >> 10 & 0xFFF) * 8 == slot
    # adrp x16; ldr x16, [x16]; br x16
    assert (adrp & 0x9F00001F, load & 0xFFC003FF) == (0x90000010, 0xF9400210)
    assert branch == 0xD61F0200
