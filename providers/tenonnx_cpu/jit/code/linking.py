"""A linker: lays an object file out as a code object that any process can map.

PC-relative addresses are settled here, for the code object moves as a whole.
Addresses as such are words of its data, written when it is loaded: in the code object
(``CodeObject.inside``) or of another (``CodeObject.outside``). Calls and references that leave the
code object go through such a word each, its *slot*. The relocations are those that LLVM emits for
position-independent code of the small model, by the processor supplements of the System V ABI.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import Enum, auto

from tenonnx_cpu.jit.code.code_object import CodeObject
from tenonnx_cpu.jit.code.objects import (
    COMMON,
    UNDEFINED,
    WRITTEN,
    Object,
    Relocation,
    Unlinkable,
    read,
)

X86_64, AARCH64 = 62, 183
PAGES = {X86_64: 1 << 12, AARCH64: 1 << 16}
"""The largest pages that systems on a machine have: Linux on ARM has those of 4, 16 or 64 KiB."""
WORD_SIZE = 8
STUB_SIZE = 16


class Subject(Enum):
    """The target of a relocation."""

    SYMBOL = auto()  # where a symbol is, which must be in this code object
    CALL = auto()  # the same, or a stub that jumps there
    SLOT = auto()  # where the word is that holds its address
    WORD = auto()  # this place itself is such a word


Writer = Callable[[bytearray, int, int], None]
"""Writes a target's offset at a place's offset; both count from the code object's beginning."""


def _relative(form: str) -> Writer:
    def write(memory: bytearray, place: int, target: int) -> None:
        struct.pack_into(form, memory, place, target - place)

    return write


def _instruction(field: Callable[[int, int], int]) -> Writer:
    """Return a writer that sets bits of a 32-bit instruction, zero before."""

    def write(memory: bytearray, place: int, target: int) -> None:
        (code,) = struct.unpack_from("<I", memory, place)
        struct.pack_into("<I", memory, place, code | field(place, target))

    return write


def _page(place: int, target: int) -> int:
    """ADRP: pages of 4 KiB between two places, 2 low bits at 29, 19 high bits at 5."""
    pages = (target >> 12) - (place >> 12)
    return (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5


def _within(shift: int) -> Writer:
    """Bits 0 to 11 of an address, in units of what is loaded or stored."""
    return _instruction(lambda place, target: (target & 0xFFF) >> shift << 10)


def _branch(place: int, target: int) -> int:
    return (target - place) >> 2 & 0x3FFFFFF


RELOCATIONS: dict[int, dict[int, tuple[Subject, Writer]]] = {
    X86_64: {
        1: (Subject.WORD, _relative("<q")),  # R_X86_64_64
        2: (Subject.SYMBOL, _relative("<i")),  # PC32
        4: (Subject.CALL, _relative("<i")),  # PLT32
        9: (Subject.SLOT, _relative("<i")),  # GOTPCREL
        24: (Subject.SYMBOL, _relative("<q")),  # PC64
        41: (Subject.SLOT, _relative("<i")),  # GOTPCRELX
        42: (Subject.SLOT, _relative("<i")),  # REX_GOTPCRELX
    },
    AARCH64: {
        257: (Subject.WORD, _relative("<q")),  # R_AARCH64_ABS64
        260: (Subject.SYMBOL, _relative("<q")),  # PREL64
        261: (Subject.SYMBOL, _relative("<i")),  # PREL32
        275: (Subject.SYMBOL, _instruction(_page)),  # ADR_PREL_PG_HI21
        277: (Subject.SYMBOL, _within(0)),  # ADD_ABS_LO12_NC
        278: (Subject.SYMBOL, _within(0)),  # LDST8_ABS_LO12_NC
        282: (Subject.CALL, _instruction(_branch)),  # JUMP26
        283: (Subject.CALL, _instruction(_branch)),  # CALL26
        284: (Subject.SYMBOL, _within(1)),  # LDST16_ABS_LO12_NC
        285: (Subject.SYMBOL, _within(2)),  # LDST32_ABS_LO12_NC
        286: (Subject.SYMBOL, _within(3)),  # LDST64_ABS_LO12_NC
        299: (Subject.SYMBOL, _within(4)),  # LDST128_ABS_LO12_NC
        311: (Subject.SLOT, _instruction(_page)),  # ADR_GOT_PAGE
        312: (Subject.SLOT, _within(3)),  # LD64_GOT_LO12_NC
    },
}


def _write_stub(machine: int, memory: bytearray, place: int, slot: int) -> None:
    """Write a jump to the address in a slot."""
    if machine == X86_64:
        memory[place : place + 2] = b"\xff\x25"  # jmp *[rip + slot]
        struct.pack_into("<i", memory, place + 2, slot - (place + 6))
        return
    # adrp x16, slot; ldr x16, [x16, slot]; br x16
    struct.pack_into("<III", memory, place, 0x90000010, 0xF9400210, 0xD61F0200)
    _instruction(_page)(memory, place, slot)
    _within(3)(memory, place + 4, slot)


def link(content: bytes, exports: Iterable[str]) -> CodeObject:
    """Make a code object of an object file.

    Args:
        content: The object file.
        exports: Symbols of it that others may find.

    Raises:
        Unlinkable: It needs what is not known here, or lacks an export.
    """
    given = read(content)
    if given.machine not in RELOCATIONS:
        raise Unlinkable(f"ELF machine {given.machine} is not known")
    linker = _Linker(given)
    for relocation in given.relocations:
        linker.apply(relocation)
    return linker.code_object(exports)


class _Linker:
    """An object laid out; what leaves it has a slot, and a stub if it is called."""

    def __init__(self, given: Object) -> None:
        self._object = given
        self._kinds = RELOCATIONS[given.machine]
        self._page = PAGES[given.machine]
        self._starts: dict[int, int] = {}
        self._inside: list[int] = []
        self._outside: dict[str, list[int]] = {}
        code = self._place(0, writable=False)
        called = self._wanted(Subject.CALL)
        self._stubs = {
            symbol: _up(code, STUB_SIZE) + STUB_SIZE * i for i, symbol in enumerate(called)
        }
        self._code = _up(_up(code, STUB_SIZE) + STUB_SIZE * len(called), self._page)
        end = _up(self._place(self._code, writable=True), WORD_SIZE)
        slots = dict.fromkeys([*called, *self._wanted(Subject.SLOT)])
        self._slots = {symbol: end + WORD_SIZE * i for i, symbol in enumerate(slots)}
        end += WORD_SIZE * len(slots)
        self._commons: dict[int, int] = {}
        for number, symbol in enumerate(given.symbols):
            if symbol.section == COMMON:
                self._commons[number] = _up(end, symbol.value)
                end = self._commons[number] + symbol.size
        self._memory = bytearray(_up(max(end, self._code + 1), WORD_SIZE))
        for number, start in self._starts.items():
            section = given.sections[number].content
            self._memory[start : start + len(section)] = section
        for symbol_number, slot in self._slots.items():
            self._point(slot, symbol_number, 0)
        for symbol_number, stub in self._stubs.items():
            _write_stub(given.machine, self._memory, stub, self._slots[symbol_number])

    def _place(self, end: int, *, writable: bool) -> int:
        for number, section in self._object.sections.items():
            if bool(section.flags & WRITTEN) == writable:
                self._starts[number] = _up(end, section.align)
                end = self._starts[number] + len(section.content)
        return end

    def _wanted(self, subject: Subject) -> list[int]:
        """Return the numbers of the symbols that some relocation wants a slot or a stub for."""
        wanted = {
            relocation.symbol
            for relocation in self._object.relocations
            if self._rule(relocation)[0] is subject
            and (subject is Subject.SLOT or self._is_outside(relocation.symbol))
        }
        return sorted(wanted)

    def _rule(self, relocation: Relocation) -> tuple[Subject, Writer]:
        if rule := self._kinds.get(relocation.kind):
            return rule
        raise Unlinkable(f"relocation {relocation.kind} is not known")

    def _is_outside(self, number: int) -> bool:
        # Symbol 0 is no symbol: its address is 0.
        return number != 0 and self._object.symbols[number].section == UNDEFINED

    def _offset(self, number: int) -> int:
        symbol = self._object.symbols[number]
        if symbol.section == COMMON:
            return self._commons[number]
        if symbol.section in self._starts:
            return self._starts[symbol.section] + symbol.value
        raise Unlinkable(f"{symbol.name or 'a symbol'} is not in this object")

    def _point(self, place: int, number: int, addend: int) -> None:
        """Have a word of data hold an address."""
        if place < self._code:
            raise Unlinkable("an address is part of the code")
        if not self._is_outside(number):
            struct.pack_into("<q", self._memory, place, self._offset(number) + addend)
            self._inside.append(place)
        elif addend:
            raise Unlinkable(f"a part of {self._object.symbols[number].name} is asked for")
        else:
            self._outside.setdefault(self._object.symbols[number].name, []).append(place)

    def apply(self, relocation: Relocation) -> None:
        """Write what a relocation says."""
        subject, write = self._rule(relocation)
        number, addend = relocation.symbol, relocation.addend
        place = self._starts[relocation.section] + relocation.offset
        if subject is Subject.WORD:
            self._point(place, number, addend)
            return
        if subject is Subject.SLOT:
            target = self._slots[number]
        elif subject is Subject.CALL and number in self._stubs:
            target = self._stubs[number]
        else:
            target = self._offset(number)
        write(self._memory, place, target + addend)

    def code_object(self, exports: Iterable[str]) -> CodeObject:
        """Return the code object once all relocations are applied."""
        numbers = {symbol.name: number for number, symbol in enumerate(self._object.symbols)}
        if missing := [name for name in exports if name not in numbers]:
            raise Unlinkable(f"the object has no {missing[0]}")
        return CodeObject(
            code=bytes(self._memory[: self._code]),
            data=bytes(self._memory[self._code :]),
            exports={name: self._offset(numbers[name]) for name in exports},
            inside=tuple(self._inside),
            outside={name: tuple(places) for name, places in self._outside.items()},
            page=self._page,
        )


def _up(offset: int, step: int) -> int:
    return -(-offset // step) * step
