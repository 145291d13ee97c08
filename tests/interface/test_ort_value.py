"""OrtValue: whose memory it is, what it says of itself, how it travels."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx import OrtValue

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_value_is_the_array_itself() -> None:
    own = OrtValue.ortvalue_from_numpy(X)
    assert own.numpy() is X
    assert own.data_ptr() == X.ctypes.data
    assert (own.shape(), own.data_type(), own.element_type()) == ([2, 3], "tensor(float)", 1)
    assert (own.device_name(), own.tensor_size_in_bytes()) == ("cpu", 24)
    assert own.is_tensor()
    assert own.has_value()
    assert not own.is_tensor_sequence()
    assert not own.is_sparse_tensor()


def test_elements_follow_each_other_from_their_address_on() -> None:
    own = OrtValue.ortvalue_from_numpy(X.T)
    address = own.data_ptr()
    there = np.ctypeslib.as_array((ctypes.c_float * 6).from_address(address))
    np.testing.assert_array_equal(there, X.T.reshape(-1))
    np.testing.assert_array_equal(own.numpy(), X.T)
    assert own.data_ptr() == address


def test_a_memory_mapped_array_stays_mapped(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 4))
    assert np.shares_memory(OrtValue.ortvalue_from_numpy(mapped).numpy(), mapped)


@pytest.mark.parametrize(
    ("element_type", "name"),
    [
        (np.float32, "tensor(float)"),
        (np.int64, "tensor(int64)"),
        (16, "tensor(bfloat16)"),
        (ml_dtypes.bfloat16, "tensor(bfloat16)"),
        (str, "tensor(string)"),
        (np.bool_, "tensor(bool)"),
    ],
)
def test_values_of_a_shape_and_type(element_type: Any, name: str) -> None:
    made = OrtValue.ortvalue_from_shape_and_type([2, 3], element_type)
    assert (made.shape(), made.data_type()) == ([2, 3], name)
    with pytest.raises(tenonnx.InvalidArgument, match="no element type"):
        OrtValue.ortvalue_from_shape_and_type([2], "nothing")


def test_bits_are_read_as_another_type() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    made = OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)
    assert made.numpy().tolist() == [1.0, 2.0]
    assert np.shares_memory(made.numpy(), bits)
    with pytest.raises(tenonnx.InvalidArgument, match="FLOAT takes 4"):
        OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 1)


def test_update_in_place() -> None:
    target = np.zeros((2, 3), np.float32)
    made = OrtValue.ortvalue_from_numpy(target)
    made.update_inplace(np.asfortranarray(X))
    np.testing.assert_array_equal(target, X)
    made.update_inplace(OrtValue.ortvalue_from_numpy(X + 1))
    np.testing.assert_array_equal(target, X + 1)
    with pytest.raises(tenonnx.InvalidArgument, match=r"expected float32\[2, 3\].*got float32\[3"):
        made.update_inplace(X.T)
    with pytest.raises(tenonnx.InvalidArgument, match="got float64"):
        made.update_inplace(X.astype(np.float64))
    target.flags.writeable = False
    with pytest.raises(tenonnx.InvalidArgument, match="read-only"):
        made.update_inplace(X)


def test_dlpack_both_ways() -> None:
    own = OrtValue.ortvalue_from_numpy(X)
    assert own.__dlpack_device__() == (1, 0)
    there = np.from_dlpack(own)
    assert there.ctypes.data == X.ctypes.data
    back = OrtValue.from_dlpack(there)
    assert back.data_ptr() == X.ctypes.data


def test_dlpack_with_torch() -> None:
    torch = pytest.importorskip("torch", reason="exchanges memory with torch")
    tensor = torch.arange(6.0).reshape(2, 3)
    ours = OrtValue.from_dlpack(tensor)
    assert ours.data_ptr() == tensor.data_ptr()
    ours.update_inplace(X * 2)
    assert tensor.tolist() == (X * 2).tolist()
    assert torch.from_dlpack(ours).data_ptr() == tensor.data_ptr()


def test_values_run() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", FLOAT, [2, 3])], [value("y", FLOAT, None)])
    session = tenonnx.InferenceSession(proto)
    own = OrtValue.ortvalue_from_numpy(X)
    np.testing.assert_array_equal(session.run(None, {"x": own})[0], X)
    (y,) = session.run_with_ort_values(["y"], {"x": own})
    np.testing.assert_array_equal(y.numpy(), X)
    fetches = tenonnx.OrtValueVector()
    session.run_with_ortvaluevector(None, ["x"], [own], ["y"], fetches, [])
    np.testing.assert_array_equal(np.asarray(fetches[0]), X)


def test_sequences_maps_and_nothing() -> None:
    sequence = OrtValue([X, X])
    assert sequence.is_tensor_sequence()
    assert sequence.data_type() == "seq(tensor(float))"
    assert OrtValue({"a": 1.0}).data_type() == "map(string,tensor(double))"
    assert not OrtValue(None).has_value()
    with pytest.raises(tenonnx.InvalidArgument, match="not a tensor"):
        sequence.data_ptr()


@pytest.mark.parametrize("flat", [True, False])
def test_sparse_coordinates(flat: bool) -> None:
    values = np.array([1, 2], np.float32)
    indices = np.array([1, 5]) if flat else np.array([[0, 1], [1, 2]])
    device = tenonnx.OrtDevice.make("cpu", 0)
    sparse = tenonnx.SparseTensor.sparse_coo_from_numpy([2, 3], values, indices, device)
    assert sparse.format() == tenonnx.OrtSparseFormat.ORT_SPARSE_COO
    assert sparse.to_dense().tolist() == [[0, 1, 0], [0, 0, 2]]
    assert sparse.values() is values
    own = OrtValue.ort_value_from_sparse_tensor(sparse)
    assert (own.is_sparse_tensor(), own.data_type()) == (True, "sparse_tensor(float)")
    assert own.as_sparse_tensor().as_coo_view().indices().shape == indices.shape
    with pytest.raises(tenonnx.InvalidArgument, match="not CSR"):
        sparse.as_csrc_view()
    with pytest.raises(tenonnx.InvalidArgument, match="sparse"):
        own.numpy()


def test_sparse_rows() -> None:
    values = np.array([1, 2], np.float32)
    device = tenonnx.OrtDevice.make("cpu", 0)
    sparse = tenonnx.SparseTensor.sparse_csr_from_numpy(
        [2, 3], values, np.array([1, 2]), np.array([0, 1, 2]), device
    )
    assert sparse.to_dense().tolist() == [[0, 1, 0], [0, 0, 2]]
    assert sparse.as_csrc_view().outer().tolist() == [0, 1, 2]
    with pytest.raises(tenonnx.InvalidArgument, match="expected 2 and 4"):
        tenonnx.SparseTensor.sparse_csr_from_numpy(
            [3, 3], values, np.array([1, 2]), np.array([0, 1, 2]), device
        )


def test_values_pickle_their_content() -> None:
    for content in (X, [X, X], {"a": 1.0}, None):
        back = pickle.loads(pickle.dumps(OrtValue(content)))
        assert repr(back) == repr(OrtValue(content))


def test_copies_between_values() -> None:
    sources = [OrtValue(X), OrtValue(X + 1)]
    targets = [OrtValue(np.zeros_like(X)) for _ in sources]
    tenonnx.copy_tensors(sources, targets)
    np.testing.assert_array_equal(targets[1].numpy(), X + 1)
    with pytest.raises(tenonnx.InvalidArgument, match="2 tensors to copy into 1"):
        tenonnx.copy_tensors(sources, targets[:1])


def test_devices_that_are_not_here() -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="no device type 'cudda'; did you mean"):
        tenonnx.OrtDevice.make("cudda", 0)
    with pytest.raises(tenonnx.TenonnxError):
        OrtValue.ortvalue_from_numpy(X, "npu", 0)
