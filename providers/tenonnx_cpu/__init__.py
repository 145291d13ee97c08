"""CPUExecutionProvider: ONNX on numpy, and on machine code where numpy is slow.

The stages of a node, in order:

1. An *operator* is a function of ``tenonnx_array`` over numpy; ``provider`` makes a step of it.
2. An *override* looks at the node, or at it and others, and returns what computes it faster, or
   ``None``: ``@specialize`` for one node (``kernel_selection``), ``@fusion`` for several (``fuse``;
   ``subgraph`` finds those that compute one value). They are in the folders of families of
   operators: ``listing`` says which module is about which operators, and ``lazy_import`` imports
   those of a graph's. What depends on shapes alone is a step of its own (``shapes``).
3. An override asks for a *kernel*, a function in the family's ``kernels``, by a
   ``JitKernel`` (``jit.runtime``); if there is none, or it does not take what it gets, the
   override calls the operator, which it has been given as ``plain``.
4. numba compiles the kernel when tenonnx is installed (``jit.compiling``, ``jit.aot``) into a
   library that processes open and share (``jit.library``); one thread pool shares its loops
   (``jit.threads``, ``threading_config``).
5. In a run, the override checks its inputs, allocates the result (``buffers``) and returns a
   *launch*: the kernel with its arguments (``capture.launch``).
6. If consecutive steps return launches, their run is *captured* as one (``capture.span``) and
   *replayed*, in machine code, without them (``capture.kernels.replay``, ``jit.layout``).
"""

from __future__ import annotations

from collections.abc import Callable

from tenonnx.hookspecs import hookimpl
from tenonnx.provider import Provider


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce the CPU provider."""
    from tenonnx_cpu.provider import CPUExecutionProvider

    register(CPUExecutionProvider)
