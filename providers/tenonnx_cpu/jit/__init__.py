"""JIT kernels: how they are declared, compiled, called, and how to write one.

All kernels for a target CPU are one shared library (``library``), which processes open without
numba: it is built when tenonnx is installed, or by ``tenonnx warmup`` (``aot``). ``runtime``,
``library``, what they import, ``scratch`` and ``layout`` may be imported without numba, as may be
what the ``kernels`` of a family and their callers agree on, in its ``__init__``; every other module
here, or of kernels, imports it, and is itself imported only to build. Kernels import nothing of
their callers, but for ``code``, ``threads``, ``vectors`` and ``compiling`` nothing of ``jit``.

A kernel in three steps:

1. *Write it* in a family's ``kernels``, on plain arrays and numbers::

       from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, kernel, size
       from tenonnx_cpu.jit.threads.parallel_for import parallel

       @parallel
       def negate_block(arguments, task, worker):
           start, stop = task * BLOCK, (task + 1) * BLOCK
           x, y = arguments[0][start:stop], arguments[1][start:stop]
           for i in range(x.size):
               y[i] = -x[i]

       @kernel((In(f32, 1), Out(f32, 1), size), Contract(launch="y is as long as x"))
       def negate(x, y, threads):
           negate_block((x, y), -(-x.size // BLOCK), threads)

   Read arrays are ``In``: read-only and writeable ones then share one compiled kernel, so mapped
   weights need no copy. Arguments that belong together are a tuple of types, and a tuple to the
   kernel; its callers hand them over one by one. The last argument is the number of threads.
   Loops over contiguous memory without branches are vectorized by LLVM, if they count from 0 over
   a slice (an index that may be negative to numba is not: 8 times slower); ``vectors.vmath`` has
   functions that stay so. Where LLVM does badly, a function writes vector instructions itself with
   ``vectors.vector``: ``@shared`` (``vectors.shared``) declares it, with its variants by element
   type and size, and ``vectors.tiles`` builds micro-kernels.

   Errors are for the caller to find first: a kernel raises nothing, checks no bounds and returns
   nothing. It allocates nothing either, for what numba allocates with is in no library: take
   scratch memory from the caller, a slice for every ``worker``, or a few elements from
   ``views.on_stack``; write loops where numba would copy (``x[i] = y``) or reshape. ``tenonnx
   warmup`` names kernels that use such a thing, and numpy computes in their place. What a
   parallel body computes must not depend on which worker does it.

   That is its only declaration: what is compiled ahead, and what ``tests/guard`` wants rows for,
   are the kernels of all modules (``compiling.declared``). The contract says what must hold of
   the arguments, and who sees to it; a row in ``tests/guard`` is a model that launches the kernel,
   whose result is compared with numpy's. How a shape is cut into tasks a kernel may be told in
   an array of numbers: their names, which its caller uses, too, are in the ``__init__`` of the
   family's ``kernels``, and ``vectors.named`` reads them by name.

2. *Name it* where it is used, which does not import numba::

       NEGATE = JitKernel("elementwise.program", "negate")

3. *Call it* from an override of a node (``tenonnx_cpu.kernel_selection``) or a fusion
   (``tenonnx_cpu.fuse``): ``NEGATE.request()`` when the node is compiled; then, on every run::

       run = NEGATE.run
       if run is None or not fits(x):
           return plain(x)
       y = np.empty_like(x)
       run(x.ravel(), y.ravel(), threads if x.size > ENOUGH else 1)
       return y

   ``run`` is ``None`` if there is no library, or it lacks the kernel: numpy's kernel, ``plain``,
   must always do. It takes arguments by position, reads arrays and numbers as they are,
   and knows nothing of types: ``fits`` must. Entering the pool costs 2 to 20 us, so small work
   stays serial.

Rules that keep compiling short: one signature where one is enough (views of other dtypes of the
same width, a number that selects the variant), no ``parallel=True``, no numba ``cache=True`` (a
kernel's object file is kept under a digest of its module and of those that it imports with ``from
tenonnx_cpu.x import y``: no other form), helpers rather than generated variants.
"""
