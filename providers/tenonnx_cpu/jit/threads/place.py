"""The thread pool's memory as LLVM's language reads and writes it."""

from __future__ import annotations

from llvmlite import ir

from tenonnx_cpu.jit.threads.memory import WORDS
from tenonnx_cpu.jit.vectors.vector import I32, I64, Builder, Value


def place(b: Builder, word: int) -> Value:
    """Return a pointer into the thread pool's memory."""
    name = "tenonnx_pool_memory"
    memory = b.module.globals.get(name)
    if memory is None:
        memory = ir.GlobalVariable(b.module, ir.ArrayType(I64, WORDS), name)
        memory.initializer = ir.Constant(memory.type.pointee, None)
        memory.linkage, memory.align = "internal", 64
    return b.gep(memory, [I32(0), I32(word)], inbounds=True)


def at(b: Builder, word: int) -> Value:
    """Return the address of a word of it."""
    return b.ptrtoint(place(b, word), I64)


def read(b: Builder, word: int, ordering: str = "acquire") -> Value:
    """Read a word."""
    return b.load_atomic(place(b, word), ordering, 8)


def write(b: Builder, value: Value, word: int, ordering: str = "release") -> None:
    """Write a word."""
    b.store_atomic(value, place(b, word), ordering, 8)
