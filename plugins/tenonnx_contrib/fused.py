"""Products and convolutions with what onnxruntime fuses into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenonnx import Array, Namespace, OperatorTable
from tenonnx.graph.traits import ACTIVATIONS
from tenonnx_array import nonlinear
from tenonnx_array.conv import conv
from tenonnx_array.linalg import gemm, matmul
from tenonnx_array.precision import widened

table = OperatorTable("com.microsoft")
op = table.op

FUSED_ACTIVATIONS: dict[str, Callable[..., Array]] = {
    **nonlinear.ACTIVATIONS,
    "": lambda _, x: x,
    "Clip": lambda xp, x, low=None, high=None: xp.clip(x, low, high),
}


def activated(
    xp: Namespace, x: Array, name: str, given: Sequence[float] | Mapping[str, float | None]
) -> Array:
    """Return an activation of x.

    Args:
        xp: The array namespace.
        x: Of any shape.
        name: The activation's.
        given: Its parameters, in order or by name. None stands for the operator's default, and
            other names are ignored.

    Raises:
        ValueError: An activation that is never fused.
    """
    if name not in FUSED_ACTIVATIONS:
        known = ", ".join(filter(None, FUSED_ACTIVATIONS))
        raise ValueError(f"expected activation to be one of {known}, found {name!r}")
    names = ("low", "high") if name == "Clip" else tuple(ACTIVATIONS.get(name, ()))
    if not isinstance(given, Mapping):
        given = dict(zip(names, given, strict=False))
    taken = {key: value for key in names if (value := given.get(key)) is not None}
    return FUSED_ACTIVATIONS[name](xp, x, **taken)


@op(
    "FusedConv",
    like=[conv],
    shapes=(
        "X: N C D ...; W: M C/group ...; B: M; Z: N M *Z[2:]; len(X) == len(W); M % group == 0"
    ),
)
@widened
def fused_conv(
    xp: Namespace,
    X: Array,
    W: Array,
    B: Array | None = None,
    Z: Array | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    **attributes: Any,
) -> Array:
    """Return the activation of ``Conv(X, W, B) + Z``.

    Raises:
        ValueError: Z has another shape than what it is added to.
    """
    y = conv(xp, X, W, B, **attributes)
    if Z is not None and Z.shape != y.shape:
        raise ValueError(f"expected Z of the convolution's shape {y.shape}, found {Z.shape}")
    return activated(xp, y if Z is None else y + Z, activation, activation_params)


@op(
    "FusedGemm",
    like=[gemm],
    shapes=(
        "A: M K if not transA; A: K M if transA; B: K N if not transB; B: N K if transB; "
        "C: | 1|N | 1|M 1|N"
    ),
)
@widened
def fused_gemm(
    xp: Namespace,
    A: Array,
    B: Array,
    C: Array | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    **attributes: Any,
) -> Array:
    """Return the activation of Gemm."""
    y = gemm(xp, A, B, C, **attributes)
    given = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return activated(xp, y, activation, given)


@op("TransposeMatMul", without=("transBatchA", "transBatchB"))
@op("FusedMatMul")
def fused_matmul(
    xp: Namespace,
    A: Array,
    B: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    """Return ``alpha * A' @ B'``; see ``arranged`` for the transposed operands."""
    y = matmul(xp, arranged(xp, A, transA, transBatchA), arranged(xp, B, transB, transBatchB))
    return y if alpha == 1 else (y * y.dtype.type(alpha)).astype(y.dtype, copy=False)


def arranged(xp: Namespace, x: Array, trans: int, trans_batch: int) -> Array:
    """Return a view of x as a stack of matrices.

    With ``trans_batch`` the first axis of x is the rows' and the others before the last are the
    stack's. With ``trans`` the last two axes of the result change places, of a vector none.
    """
    if trans_batch and x.ndim > 2:
        x = xp.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if trans and x.ndim > 1 else x
