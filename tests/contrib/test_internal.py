"""Operators of onnxruntime's own models, where its answers are not enough to compare with."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from formulas import RNG, bytes_of, close, nibbles, real, run

import tenonnx


def sparse_session(dtype: type[np.generic], **attributes: float) -> tenonnx.InferenceSession:
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = onnx.helper.make_node(
        "SparseToDenseMatMul", ["A", "B"], ["Y"], domain="com.microsoft", **attributes
    )
    graph = onnx.helper.make_graph(
        [node],
        "sparse",
        [
            onnx.helper.make_sparse_tensor_value_info("A", kind, None),
            onnx.helper.make_tensor_value_info("B", kind, None),
        ],
        [onnx.helper.make_tensor_value_info("Y", kind, None)],
    )
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return tenonnx.InferenceSession(model, providers=["cpu"])


def sparse(dense: np.ndarray, layout: str) -> tenonnx.SparseTensor:
    device = tenonnx.OrtDevice.make("cpu", 0)
    rows, columns = np.nonzero(dense)
    values = dense[rows, columns]
    if layout == "csr":
        starts = np.append(0, np.cumsum(np.count_nonzero(dense, axis=1)))
        return tenonnx.SparseTensor.sparse_csr_from_numpy(
            dense.shape, values, columns, starts, device
        )
    places = np.stack((rows, columns), axis=1)
    if layout == "flat":
        places = np.ravel_multi_index((rows, columns), dense.shape)
    return tenonnx.SparseTensor.sparse_coo_from_numpy(dense.shape, values, places, device)


@pytest.mark.parametrize("layout", ["csr", "pairs", "flat"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint64])
def test_a_sparse_matrix_times_a_dense_one(layout: str, dtype: type[np.generic]) -> None:
    dense = (RNG.integers(1, 9, (5, 7)) * RNG.integers(0, 2, (5, 7))).astype(dtype)
    for turn_a, turn_b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        b = RNG.integers(0, 9, (5 if turn_a else 7, 3)).astype(dtype)
        session = sparse_session(dtype, transA=turn_a, transB=turn_b)
        fed = {"A": sparse(dense, layout), "B": b.T.copy() if turn_b else b}
        (y,) = session.run(None, fed)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, (dense.T if turn_a else dense) @ b)


def test_a_sparse_product_is_scaled() -> None:
    dense, b = real(4, 4) * RNG.integers(0, 2, (4, 4)).astype(np.float32), real(4, 2)
    value = tenonnx.OrtValue.ort_value_from_sparse_tensor(sparse(dense, "csr"))
    (y,) = sparse_session(np.float32, alpha=1.5).run(None, {"A": value, "B": b})
    close(y, 1.5 * np.float64(dense) @ b)


def test_what_is_no_sparse_matrix_is_refused() -> None:
    session = sparse_session(np.float32)
    b = real(4, 2)
    with pytest.raises(tenonnx.InvalidArgument, match=r"expected sparse_tensor\(float\)"):
        session.run(None, {"A": real(4, 4), "B": b})
    with pytest.raises(tenonnx.InvalidArgument, match=r"sparse_tensor\(double\)"):
        session.run(None, {"A": sparse(np.eye(4), "csr"), "B": b})
    with pytest.raises(tenonnx.TenonnxError, match=r"matrices that fit, found A \[3, 3\]"):
        session.run(None, {"A": sparse(np.eye(3, dtype=np.float32), "csr"), "B": b})


def test_masks_belong_to_images() -> None:
    x, mask = real(2, 3, 5, 4), RNG.integers(0, 3, (2, 3, 5, 4)).astype(np.int32)
    (whole,) = run("MaxpoolWithMask", x, mask, kernel_shape=[2, 2])
    for image in np.ndindex(2, 3):
        alone = (slice(image[0], image[0] + 1), slice(image[1], image[1] + 1))
        (y,) = run("MaxpoolWithMask", x[alone], mask[alone], kernel_shape=[2, 2])
        np.testing.assert_array_equal(whole[alone], y)
    (shared,) = run("MaxpoolWithMask", x, mask[:1], kernel_shape=[2, 2])
    np.testing.assert_array_equal(shared[0], whole[0])


def test_blocks_of_64_rows() -> None:
    codes, scales = bytes_of(3, 2, 32), np.abs(real(3, 2, 1))
    packed = np.concatenate((scales.view(np.uint8), codes), axis=-1)
    x, shape = real(2, 100), np.array([100, 3])
    (y,) = run("MatMulFpQ4", x, packed.ravel(), shape, blk_quant_type=2)
    pairs = nibbles(codes).reshape(3, 4, 16, 2)
    weights = (pairs.swapaxes(2, 3).reshape(3, 2, 64) - 8.0) * scales
    close(y, x @ weights.reshape(3, 128)[:, :100].T, 1e-4)


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [(3, 63, "0, 1 or 2, found 3"), (1, 60, "expected 63 bytes for B_shape")],
)
def test_what_is_no_packing_is_refused(kind: int, size: int, message: str) -> None:
    with pytest.raises(tenonnx.TenonnxError, match=message):
        run("MatMulFpQ4", real(2, 32), bytes_of(size), np.array([32, 3]), blk_quant_type=kind)
