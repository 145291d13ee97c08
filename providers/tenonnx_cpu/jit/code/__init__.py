"""From what LLVM makes of a kernel to machine code that any process maps."""
