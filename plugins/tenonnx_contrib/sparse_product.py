"""SparseToDenseMatMul: a product with a matrix that is given by its values alone."""

from __future__ import annotations

from tenonnx import Array, Namespace, OperatorTable, SparseTensor

table = OperatorTable("com.microsoft")
op = table.op


@op("SparseToDenseMatMul", host="all")
def sparse_to_dense_matmul(
    xp: Namespace,
    A: SparseTensor | Array,
    B: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """Return ``alpha * A @ B`` for matrices, either of which may be taken transposed.

    A sparse constant of the model arrives dense.

    Raises:
        ValueError: They are no matrices that fit, or integers have an ``alpha``.
    """
    shape = tuple(A.dense_shape()) if isinstance(A, SparseTensor) else A.shape
    dense, turned = (B.T if transB else B), (shape[::-1] if transA else shape)
    if len(shape) != 2 or B.ndim != 2 or turned[1] != len(dense):
        raise ValueError(
            f"expected matrices that fit, found A {list(shape)} and B {list(B.shape)} with "
            f"transA={transA} and transB={transB}"
        )
    if alpha != 1 and B.dtype.kind != "f":
        raise ValueError(f"alpha is {alpha}; expected 1 for {B.dtype}")
    if isinstance(A, SparseTensor):
        rows, columns = A.coordinates()[:: -1 if transA else 1]
        y = xp.zeros((turned[0], dense.shape[1]), B.dtype)
        xp.add.at(y, rows, A.values()[:, None] * dense[columns])
    else:
        y = xp.matmul(A.T if transA else A, dense)
    return y if alpha == 1 else y * B.dtype.type(alpha)
