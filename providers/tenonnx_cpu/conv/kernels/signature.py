"""The arguments that all kernels of convolutions share."""

from __future__ import annotations

from tenonnx_cpu.conv.kernels import UNROLLED_WINDOWS
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, i64, size

AFTER = (In(f32, 1), In(f32, 1), In(f32, 1), size, f32, f32, In(f32, 1))
"""The arguments of ``activate(sum * scale + shift + residual)``:

* ``scale``, ``shift``: a number for every channel of the result;
* ``residual``: like the result, or empty;
* ``activation``, ``first``, ``second``: one of ``elementwise.kernels.opcodes`` and its parameters;
* ``units``: 64 ones and 64 zeros.
"""

# ``numbers``, ``offsets``, ``panel`` and ``planes`` of a ``tenonnx_cpu.conv.layout.ConvLayout``.
LAYOUT = (In(i64, 1), In(i64, 1), In(i64, 1), In(i64, 2))

# Images, weights and the result, flat; what becomes of sums; the layout; floats for every thread to
# work in; how many threads to use.
CONVOLUTION = (In(f32, 1), In(f32, 1), Out(f32, 1), AFTER, LAYOUT, Out(f32, 1), size)

WINDOWS = Contract(
    plan="kernel_shape, strides, dilations and pads have the rank; weights divide into groups",
    launch="channels are the weights'; each window begins in the padded image; a bias has a number "
    "per channel",
)

# Square kernels and strides that have code of their own, by the number that layouts call it.
UNROLLED = {(number,): window for number, window in enumerate(UNROLLED_WINDOWS, 1)}
