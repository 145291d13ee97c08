"""Libraries of one kernel, which belongs to no library: a test's or a benchmark's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tenonnx_cpu.jit.aot.linking import link
from tenonnx_cpu.jit.code.building import identity_object, kernel_object, shared_object
from tenonnx_cpu.jit.code.cpu import compiled_architecture
from tenonnx_cpu.jit.compiling import Kernel
from tenonnx_cpu.jit.library import Library
from tenonnx_cpu.jit.vectors import shared


def load(kernel: Kernel) -> Callable[..., Any]:
    """Return a kernel that belongs to no library, as of a test: it gets one of its own."""
    name = f"own.{kernel.function.__name__}"
    code = kernel_object(kernel, name)
    contents = [code, identity_object(""), *map(shared_object, _reached(code))]
    with tempfile.TemporaryDirectory() as folder:
        objects = [Path(folder, f"{n}.o") for n in range(len(contents))]
        for path, content in zip(objects, contents, strict=True):
            path.write_bytes(content)
        path = Path(folder, "library")
        link(objects, str(path), compiled_architecture())
        found = Library(str(path)).kernel(name)
    assert found is not None, "that is what was linked"
    return found


def _reached(code: bytes) -> Iterator[str]:
    """Yield the files whose shared functions an object needs, and the thread pool's."""
    waiting, seen = [code], set[str]()
    while waiting:
        names = waiting.pop()
        for file, functions in shared.GROUPS.items():
            wanted = any(each.is_exported or each.name.encode() in names for each in functions)
            if wanted and file not in seen:
                seen.add(file)
                waiting.append(shared_object(file))
                yield file
