"""A loaded model has the file's contents, and its weights lie where the file's bytes lie."""

from __future__ import annotations

import concurrent.futures
import gc
import mmap
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from everywhere import (
    TP,
    array,
    everywhere,
    external,
    fails,
    has_every_tensor,
    holder,
    lies_in,
    save,
    tensors_of,
    weight,
    weights_of,
)
from onnx import helper, numpy_helper

from tenonnx.errors import InvalidGraph
from tenonnx.formats.load import load
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.storage import pack
from tenonnx.weights.tensors import WeightTensor


def test_inline_weights_are_views_of_the_models_file(
    registry: WeightRegistry, tmp_path: Path
) -> None:
    path = save(everywhere(), tmp_path / "model.onnx")
    model = load(path, registry)
    has_every_tensor(model)
    lies_in(weights_of(model), registry.map(path).buffer)
    assert weights_of(load(str(path), registry)) == weights_of(model)


def test_external_weights_are_views_of_the_data_file(
    registry: WeightRegistry, tmp_path: Path
) -> None:
    path = save(everywhere(), tmp_path / "model.onnx", external=True)
    model = load(path, registry)
    has_every_tensor(model)
    lies_in(weights_of(model), registry.map(tmp_path / "model.onnx_data").buffer)
    assert weights_of(load(path, registry)) == weights_of(model)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=lambda make: make.__name__)
def test_a_buffers_weights_are_views_of_the_buffer(registry: WeightRegistry, make: Any) -> None:
    buffer = make(everywhere().SerializeToString())
    model = load(buffer, registry)
    has_every_tensor(model)
    lies_in(weights_of(model), buffer)
    assert weights_of(load(buffer, registry)) == weights_of(model)


def test_a_buffer_may_be_the_callers_own_mapping(registry: WeightRegistry, tmp_path: Path) -> None:
    path = save(everywhere(), tmp_path / "model.onnx")
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = load(pages, registry)
    has_every_tensor(model)
    lies_in(weights_of(model), pages)


def test_a_proto_is_copied_once_for_all_sessions(registry: WeightRegistry) -> None:
    proto = everywhere()
    before = proto.SerializeToString()
    model = load(proto, registry)
    has_every_tensor(model)
    assert weights_of(load(proto, registry)) == weights_of(model)
    assert registry.report().private == sum(array(n).nbytes for n in range(8)) + 16
    proto.graph.initializer[0].raw_data = bytes(array(0).nbytes)
    has_every_tensor(model)
    proto.graph.initializer[0].raw_data = array(0).tobytes()
    assert proto.SerializeToString() == before


def test_an_ir_model_shares_its_tensors_and_is_not_touched(
    registry: WeightRegistry, tmp_path: Path
) -> None:
    source = ir.from_proto(everywhere())
    mine = array(0)
    source.graph.initializers["weight"].const_value = ir.Tensor(mine, name="weight")
    before = list(tensors_of(source))
    model = load(source, registry)
    has_every_tensor(model)
    assert np.shares_memory(weight(model, "weight").array, mine)
    assert all(a is b for a, b in zip(before, tensors_of(source), strict=True))
    assert not any(isinstance(tensor, WeightTensor) for tensor in before)
    model.graph.remove(next(iter(model.graph)))
    assert len(source.graph) == len(model.graph) + 1

    again = load(model, registry)
    assert weights_of(again) == weights_of(model), "weights stay what they are"
    path = save(everywhere(), tmp_path / "model.onnx", external=True)
    external = load(ir.load(path), registry)
    has_every_tensor(external)
    lies_in(weights_of(external), registry.map(tmp_path / "model.onnx_data").buffer)


def test_every_kind_of_ir_tensor(registry: WeightRegistry) -> None:
    int4 = np.array([[-8, 7, 3]], ml_dtypes.int4)
    mine: dict[str, Any] = {
        "array": ir.Tensor(array(0).T),
        "bits": ir.Tensor(np.arange(99, dtype=np.uint16), dtype=ir.DataType.BFLOAT16),
        "int4": ir.Tensor(int4),
        "packed": ir.PackedTensor(
            pack(int4, ir.DataType.INT4), ir.DataType.INT4, shape=ir.Shape([1, 3])
        ),
        "lazy": ir.LazyTensor(
            lambda: ir.tensor(array(1)), dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 3])
        ),
        "strings": ir.StringTensor([b"a", b"b"], shape=ir.Shape([2])),
    }
    values = [ir.Value(name=name, const_value=tensor) for name, tensor in mine.items()]
    source = ir.Model(ir.Graph([], [], nodes=[], initializers=values), ir_version=10)
    model = load(source, registry)
    for name, tensor in mine.items():
        found = model.graph.initializers[name].const_value
        assert found is not None
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        np.testing.assert_array_equal(found.numpy(), tensor.numpy())
    assert weight(model, "int4").array.size == 2
    assert np.shares_memory(weight(model, "packed").array, mine["packed"].numpy_packed())
    assert model.graph.initializers["strings"].const_value is mine["strings"]


@pytest.mark.parametrize("external", [False, True], ids=["inline", "external"])
@pytest.mark.parametrize("dtype", [d for d in ir.DataType if d not in (0, 8)], ids=str)
def test_every_element_type(
    registry: WeightRegistry, tmp_path: Path, dtype: ir.DataType, external: bool
) -> None:
    size = -(-dtype.bitwidth * 1001 // 8)
    raw = bytes([1] * size)
    proto = onnx.TensorProto(name="w", data_type=int(dtype), dims=[7, 143], raw_data=raw)
    path = tmp_path / "m.onnx"
    save(holder(proto), path, external)
    model = load(path, registry)
    found = model.graph.initializers["w"].const_value
    assert isinstance(found, WeightTensor)
    assert (found.dtype, found.weight.shape, found.nbytes) == (dtype, (7, 143), size)
    assert found.tobytes() == raw
    assert found.weight.storage.kind == "mapped"
    np.testing.assert_array_equal(
        found.numpy().view(np.uint8), ir.serde.TensorProtoTensor(proto).numpy().view(np.uint8)
    )


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (TP.FLOAT, np.arange(50)),
        (TP.DOUBLE, np.arange(50)),
        (TP.COMPLEX64, np.arange(50) * 1j),
        (TP.FLOAT16, np.arange(50)),
        (TP.BFLOAT16, np.arange(50)),
        (TP.INT32, -np.arange(50)),
        (TP.INT64, -np.arange(50)),
        (TP.UINT64, np.arange(50)),
        (TP.UINT32, np.arange(50)),
        (TP.BOOL, np.arange(50) % 2),
        (TP.INT8, -np.arange(50)),
        (TP.INT4, np.arange(50) % 8),
        (TP.FLOAT8E4M3FN, np.arange(50) % 8),
        (TP.FLOAT, np.arange(3)),
    ],
    ids=str,
)
def test_typed_data(registry: WeightRegistry, dtype: int, values: Any) -> None:
    proto = helper.make_tensor("w", dtype, values.shape, values)
    assert not proto.HasField("raw_data")
    data = holder(proto).SerializeToString()
    model = load(data, registry)
    found = model.graph.initializers["w"].const_value
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), numpy_helper.to_array(proto))
    viewed = np.shares_memory(weight(model, "w").array, np.frombuffer(data, np.uint8))
    assert viewed == (dtype in (TP.FLOAT, TP.DOUBLE) and values.size == 50)


def test_strings_stay_strings(registry: WeightRegistry) -> None:
    proto = TP(name="s", data_type=TP.STRING, dims=[2], string_data=[b"one", b"two" * 100])
    data = holder(proto).SerializeToString()
    found = load(data, registry).graph.initializers["s"].const_value
    assert isinstance(found, ir.StringTensor)
    assert found.numpy().tolist() == [b"one", b"two" * 100]


def test_names_documentation_and_metadata_stay(registry: WeightRegistry) -> None:
    proto = everywhere()
    proto.graph.initializer[0].doc_string = "what it is"
    proto.graph.initializer[0].metadata_props.add(key="k", value="v")
    model = load(proto.SerializeToString(), registry)
    found = model.graph.initializers["weight"].const_value
    assert found is not None
    assert (found.name, found.doc_string, found.metadata_props) == (
        "weight",
        "what it is",
        {"k": "v"},
    )


def test_a_model_can_be_saved_cloned_and_optimized(
    registry: WeightRegistry, tmp_path: Path
) -> None:
    from onnx_ir.passes import common

    path = save(everywhere(), tmp_path / "model.onnx")
    model = load(path, registry)
    proto = ir.to_proto(model)
    assert proto.graph.initializer[0] == everywhere().graph.initializer[0]
    has_every_tensor(load(proto, registry))
    has_every_tensor(model.clone())
    ir.save(model, tmp_path / "inline.onnx")
    ir.save(model, tmp_path / "external.onnx", external_data="data", size_threshold_bytes=0)
    ir.save(model, tmp_path / "threads.onnx", external_data="data2", max_workers=4)
    for name in ("inline", "external", "threads"):
        has_every_tensor(load(tmp_path / f"{name}.onnx", registry))
        onnx.load(tmp_path / f"{name}.onnx")
    common.LiftConstantsToInitializersPass()(model)
    common.DeduplicateInitializersPass()(model)
    common.RemoveUnusedNodesPass()(model)
    assert weights_of(model)
    lies_in(weights_of(model), registry.map(path).buffer)


def test_a_tensor_is_a_tensor_to_everyone(registry: WeightRegistry) -> None:
    mine = array(0)
    found = WeightTensor(registry.from_array(mine), name="w")
    assert isinstance(found, ir.TensorProtocol)
    assert (found.size, found.nbytes, found.name) == (192, 768, "w")
    assert repr(found) == "WeightTensor<FLOAT,[64,3]>(name='w')"
    np.testing.assert_array_equal(np.asarray(found), mine)
    assert np.asarray(found, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(found, copy=True), mine)
    assert found.__dlpack_device__() == (1, 0)
    other = np.from_dlpack(found)
    assert np.shares_memory(other, mine)
    assert not other.flags.writeable
    strided = WeightTensor(registry.from_array(mine.T))
    assert strided.tobytes() == mine.T.tobytes()
    with Path(os.devnull).open("wb") as file:
        strided.tofile(file)


def test_threads_that_load_one_model_share_it(registry: WeightRegistry, tmp_path: Path) -> None:
    path = save(everywhere(), tmp_path / "model.onnx")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        models = list(pool.map(lambda _: load(path, registry), range(16)))
    assert len({tuple(map(id, weights_of(model))) for model in models}) == 1


def test_when_the_model_is_gone_so_is_the_mapping(registry: WeightRegistry, tmp_path: Path) -> None:
    path = save(everywhere(), tmp_path / "model.onnx", external=True)
    model = load(path, registry)
    assert registry.report().mapped == (tmp_path / "model.onnx_data").stat().st_size
    del model
    gc.collect()
    assert registry.report().storages == ()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_left_as_it_was(registry: WeightRegistry, enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        load(everywhere(), registry)
        assert gc.isenabled() == enabled
        fails(external("x"), registry, InvalidGraph)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
