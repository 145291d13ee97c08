"""Functions before LLVM optimizes anything: a module each, and the functions that it calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm
from numba.core import cgutils, codegen


class CodeModules(codegen.AOTCodeLibrary):
    """A library to which numba adds one function; nothing is linked or optimized until ``whole``.

    A helper is therefore read once, and no copy of it is optimized on its way up to a kernel.
    """

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._called: dict[CodeModules, None] = {}

    def add_linking_library(self, library: CodeModules) -> None:
        """Make known that what the library has is called."""
        self._called[library] = None

    def add_ir_module(self, ir_module: Any) -> None:
        """Add code."""
        text = cgutils.normalize_ir_text(str(ir_module))
        self._final_module.link_in(llvm.parse_assembly(text))

    def finalize(self) -> None:
        """Do nothing: it is linked as it is."""
        self._finalized = True

    def whole(self, name: str | None = None) -> Any:
        """Return a module with this and all that it calls; others may call what has the name."""
        module = llvm.parse_assembly(str(self.codegen._create_empty_module(self.name)))
        for library in self._reached():
            module.link_in(library._final_module, preserve=True)
        for function in module.functions:
            if function.linkage == llvm.Linkage.external and not function.is_declaration:
                function.linkage = "external" if function.name == name else "linkonce_odr"
        module.verify()
        return module

    def _get_module_for_linking(self) -> Any:
        return self.whole()  # for functions of numba's own target

    def _reached(self) -> Iterator[CodeModules]:
        waiting, seen = [self], {self}
        while waiting:
            library = waiting.pop()
            yield library
            new = [each for each in library._called if each not in seen]
            waiting += new
            seen.update(new)

    def get_pointer_to_function(self, name: str) -> int:
        """Return no address: what Python calls is in a shared library."""
        del name
        return 0
