"""BatchNormalization on its own: a product and a sum per channel, in one pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx.graph.affine import affine_of
from tenonnx_cpu.buffers import F32, F64, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.elementwise.kernels.operations import AFFINE, FLOAT32, FLOAT64
from tenonnx_cpu.elementwise.typed import APPLY, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize


@specialize("BatchNormalization")
def specialize_batch_norm(site: Site, plain: Call) -> Call | None:
    """Normalize float32 and float64 by constant statistics."""
    image, dtype = site.node.inputs[0], F64 if site.dtype(0) == F64 else F32
    found = None if image is None else affine_of(site.node, image, None, 0)
    affine = () if found is None else tuple(a.astype(dtype) for a in found if a is not None)
    if len(affine) < 2:
        return None
    APPLY.request()
    return Capturable(BatchNormCall(affine[0], affine[1], site.threads, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class BatchNormCall:
    """Multiplies each channel by a factor, and adds a number.

    Attributes:
        factors: Of channels.
        shifts: Of channels.
        threads: How many to use at most.
        plain: Normalizes other arrays than those of so many channels and of the factors' type.
    """

    factors: NDArray
    shifts: NDArray
    threads: int
    plain: Call
    _placed: dict[int, tuple[NDArray, NDArray]] = field(default_factory=dict)

    def __call__(self, x: NDArray, *parameters: NDArray) -> Any:
        """Return a launch, or the results."""
        if x.dtype != self.factors.dtype or x.ndim < 2 or x.shape[1] != self.factors.size:
            return self.plain(x, *parameters)
        if (placed := self._placed.get(x.ndim)) is None:
            shape = (-1, *(1,) * (x.ndim - 2))
            placed = frozen(self.factors).reshape(shape), frozen(self.shifts).reshape(shape)
            self._placed[x.ndim] = placed
        element = FLOAT64 if x.dtype == F64 else FLOAT32
        made = launch(AFFINE, element, (x, *placed), x.dtype, self.threads)
        if made is None:
            return self.plain(x, *parameters)
        return made._replace(result=(made.result,))
