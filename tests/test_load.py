from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import gzip
import io
import mmap
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tenonnx.errors import InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile
from tenonnx.load import load
from tenonnx.weights.registry import Weight, WeightRegistry
from tenonnx.weights.sidefile import SideFiles
from tenonnx.weights.storage import pack
from tenonnx.weights.tensors import WeightTensor

TP = onnx.TensorProto


@pytest.fixture
def registry(tmp_path: Path) -> WeightRegistry:
    return WeightRegistry(SideFiles(tmp_path / "cache"))


def array(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape or (64, 3), np.float32)


def tensor(seed: int, name: str = "") -> onnx.TensorProto:
    return numpy_helper.from_array(array(seed), name)


def everywhere() -> onnx.ModelProto:
    """A model with a tensor in every place that can hold one; the n-th is ``array(n)``."""
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value=tensor(4))], "inner", [],
        [helper.make_tensor_value_info("y", TP.FLOAT, None)], [tensor(3, "inner")],
    )  # fmt: skip
    branch = helper.make_graph(
        [helper.make_node("If", ["cond"], ["y"], then_branch=inner, else_branch=inner)], "branch",
        [], [helper.make_tensor_value_info("y", TP.FLOAT, None)], [tensor(2, "outer")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["constant"], value=tensor(1)),
        helper.make_node("If", ["cond"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("Own", [], ["own"], domain="own", several=[tensor(5), tensor(6)]),
    ]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    body = [helper.make_node("Constant", [], ["out"], value=tensor(7))]
    function = helper.make_function("own", "Own", [], ["out"], body, opsets)
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("cond", TP.BOOL, [])],
        [helper.make_tensor_value_info("z", TP.FLOAT, None)],
        [tensor(0, "weight"), numpy_helper.from_array(np.array([1, 2]), "tiny")],
    )
    return helper.make_model(graph, opset_imports=opsets, functions=[function])


def attribute_tensors(node: ir.Node) -> Iterator[ir.TensorProtocol]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.TENSOR:
            yield attribute.value
        elif attribute.type == ir.AttributeType.TENSORS:
            yield from attribute.value


def tensors_of(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            assert value.const_value is not None
            yield value.const_value
    functions = model.functions.values()
    for node in [*model.graph.all_nodes(), *(n for f in functions for n in f.all_nodes())]:
        yield from attribute_tensors(node)


def weights_of(model: ir.Model) -> list[Weight]:
    found = list(tensors_of(model))
    assert all(isinstance(tensor, WeightTensor) for tensor in found)
    return [tensor.weight for tensor in found if isinstance(tensor, WeightTensor)]


def weight(model: ir.Model, name: str) -> Weight:
    found = model.graph.initializers[name].const_value
    assert isinstance(found, WeightTensor)
    return found.weight


def has_every_tensor(model: ir.Model) -> None:
    found = {w.array.tobytes() for w in weights_of(model)}
    expected = {array(number).tobytes() for number in range(8)}
    assert found == {*expected, np.array([1, 2]).tobytes()}


def save(proto: onnx.ModelProto, path: Path, external: bool = False) -> Path:
    if external:
        proto = onnx.ModelProto.FromString(proto.SerializeToString())
        onnx.save(
            proto, path, save_as_external_data=True, location=path.name + "_data",
            size_threshold=100, convert_attribute=True,
        )  # fmt: skip
    else:
        onnx.save(proto, path)
    return path


def lies_in(weights: list[Weight], buffer: Any) -> None:
    pages = np.frombuffer(buffer, np.uint8)
    for found in weights:
        assert np.shares_memory(found.array, pages) == (found.nbytes >= 128)


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
    save(helper.make_model(helper.make_graph([], "g", [], [], [proto])), path, external)
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
    data = helper.make_model(helper.make_graph([], "g", [], [], [proto])).SerializeToString()
    model = load(data, registry)
    found = model.graph.initializers["w"].const_value
    assert found is not None
    np.testing.assert_array_equal(found.numpy(), numpy_helper.to_array(proto))
    viewed = np.shares_memory(weight(model, "w").array, np.frombuffer(data, np.uint8))
    assert viewed == (dtype in (TP.FLOAT, TP.DOUBLE) and values.size == 50)


def test_strings_stay_strings(registry: WeightRegistry) -> None:
    proto = TP(name="s", data_type=TP.STRING, dims=[2], string_data=[b"one", b"two" * 100])
    data = helper.make_model(helper.make_graph([], "g", [], [], [proto])).SerializeToString()
    found = load(data, registry).graph.initializers["s"].const_value
    assert isinstance(found, ir.StringTensor)
    assert found.numpy().tolist() == [b"one", b"two" * 100]


def sparse(name: str, values: Any, indices: Any, dims: list[int]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), name),
        numpy_helper.from_array(np.array(indices), name + "_indices"),
        dims,
    )


def sparse_model(tensor: onnx.SparseTensorProto) -> onnx.ModelProto:
    inner = helper.make_graph([], "inner", [], [])
    inner.sparse_initializer.append(tensor)
    node = helper.make_node("If", ["cond"], [], then_branch=inner, else_branch=inner)
    constant = helper.make_node("Constant", [], ["c"], sparse_value=tensor)
    graph = helper.make_graph(
        [node, constant, helper.make_node("Identity", ["s"], ["y"])],
        "g",
        [helper.make_tensor_value_info("cond", TP.BOOL, [])],
        [helper.make_tensor_value_info("y", TP.FLOAT, None)],
    )
    graph.sparse_initializer.append(tensor)
    return helper.make_model(graph)


@pytest.mark.parametrize("form", ["bytes", "proto"])
@pytest.mark.parametrize(
    ("indices", "dims"), [([1, 5], [6]), ([[0, 1], [1, 2]], [2, 3])], ids=["flat", "rows"]
)
def test_sparse_tensors_become_dense(
    registry: WeightRegistry, form: str, indices: Any, dims: list[int]
) -> None:
    proto = sparse_model(sparse("s", [7, 8], indices, dims))
    before = proto.SerializeToString()
    model = load(before if form == "bytes" else proto, registry)
    expected = np.array([0, 7, 0, 0, 0, 8]).reshape(dims)
    found = weights_of(model)
    assert len(found) == 4
    assert len(set(map(id, found))) == 1, "equal tensors are one weight"
    np.testing.assert_array_equal(found[0].array, expected)
    assert found[0].shape == tuple(dims)
    assert proto.SerializeToString() == before
    identity = list(model.graph)[-1]
    assert identity.inputs[0] is model.graph.initializers["s"]


def test_a_large_sparse_tensor_goes_to_a_side_file(registry: WeightRegistry) -> None:
    values, places = np.arange(1, 101), np.arange(100) * 1000
    model = load(sparse_model(sparse("s", values, places, [100_000])), registry)
    found = weight(model, "s")
    assert found.storage.kind == "derived"
    np.testing.assert_array_equal(found.array[::1000], values)
    assert np.count_nonzero(found.array) == 100


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([6, 0], [6], "sparse tensor 's' has indices outside of its shape (6,)"),
        ([-1, 0], [6], "sparse tensor 's' has indices outside of its shape (6,)"),
        ([[0, 3], [0, 0]], [2, 3], "sparse tensor 's' has indices outside of its shape (2, 3)"),
        ([[0], [0]], [2, 3], "sparse tensor 's' has indices outside of its shape (2, 3)"),
        ([0, 1], [-6], "sparse tensor 's' needs flat values, int64 indices and a shape"),
        ([0, 1, 2], [6], "sparse tensor 's' has 2 values, but indices of shape (3,)"),
        ([0, 1], [1] * 65, f"sparse tensor 's', FLOAT{[1] * 65}, has no dense form: elements "
         "must be a byte or wider, and dimensions at most 64"),
    ],
)  # fmt: skip
def test_malformed_sparse_tensors(
    registry: WeightRegistry, indices: Any, dims: list[int], message: str
) -> None:
    proto = sparse_model(sparse("s", [7, 8], indices, dims))
    with pytest.raises(InvalidGraph) as caught:
        load(proto, registry)
    assert str(caught.value) == message


def test_a_sparse_tensor_that_would_fill_the_machine(registry: WeightRegistry) -> None:
    proto = sparse_model(sparse("s", [7, 8], [0, 1], [2**40, 2**40]))
    message = fails(proto, registry, InvalidGraph)
    assert message.startswith(f"sparse tensor 's' takes {2**82} bytes when dense; this machine has")


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sparse_tensors_are_what_they_say(registry: WeightRegistry, data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    size = int(np.prod(dims))
    places = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    values = np.arange(1, len(places) + 1)
    expected = np.zeros(size)
    expected[places] = values
    rows: Any = np.array(places, np.int64)
    if data.draw(st.booleans()):
        rows = np.stack(np.unravel_index(rows, dims), 1)
    model = load(sparse_model(sparse("s", values, rows, dims)), registry)
    np.testing.assert_array_equal(weight(model, "s").array, expected.reshape(dims))


@settings(deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
@given(place=st.integers(0, 10**6), change=st.integers(1, 255))
def test_damaged_sparse_tensors(registry: WeightRegistry, place: int, change: int) -> None:
    damaged = bytearray(sparse_model(sparse("s", [7, 8], [1, 5], [6])).SerializeToString())
    damaged[place % len(damaged)] ^= change
    with contextlib.suppress(InvalidGraph, InvalidProtobuf):
        load(bytes(damaged), registry)


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


def test_a_model_can_be_saved_cloned_and_optimised(
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


HUGE = 3 << 30


def test_external_data_over_two_gigabytes(registry: WeightRegistry, tmp_path: Path) -> None:
    data = tmp_path / "huge.data"
    with data.open("wb") as file:
        file.truncate(HUGE)
        file.seek(HUGE - 4)
        file.write(np.float32(2.5).tobytes())
    proto = external("huge.data", dims=[HUGE // 4])
    onnx.save(proto, tmp_path / "m.onnx")
    found = weight(load(tmp_path / "m.onnx", registry), "w").array
    assert found.shape == (HUGE // 4,)
    assert found[-1] == 2.5
    assert found[0] == 0


def test_a_model_over_two_gigabytes(registry: WeightRegistry, tmp_path: Path) -> None:
    graph = helper.make_graph([], "g", [], []).SerializeToString()
    head = TP(name="w", data_type=TP.FLOAT, dims=[HUGE // 4]).SerializeToString()
    raw = b"\x4a" + varint(HUGE)
    tensor = b"\x2a" + varint(len(head) + len(raw) + HUGE) + head + raw
    start = b"\x08\x0a\x3a" + varint(len(graph) + len(tensor) + HUGE) + graph + tensor
    path = tmp_path / "huge.onnx"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + HUGE)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(2.5).tobytes())
    found = weight(load(path, registry), "w")
    assert found.offset == len(start)
    assert found.array.view("V4")[-1].tobytes() == np.float32(2.5).tobytes()


def varint(number: int) -> bytes:
    encoded = []
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


GROWTH = """
import sys, onnx, onnx_ir as ir
from pathlib import Path
from tenonnx.load import load
from tenonnx.weights.registry import WeightRegistry
def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
registry = WeightRegistry()
load(sys.argv[2], registry)
path = sys.argv[1]
source = {"path": lambda: path, "bytes": Path(path).read_bytes, "proto": lambda: onnx.load(path),
          "ir": lambda: ir.load(path)}[sys.argv[3]]()
before = anonymous()
models = [load(source, registry) for _ in range(3)]
print(anonymous() - before)
"""


@pytest.mark.parametrize(
    ("form", "where"),
    [
        ("path", "inline"),
        ("path", "external"),
        ("bytes", "inline"),
        ("proto", "inline"),
        ("ir", "external"),
    ],
)
def test_private_memory_that_three_sessions_take(tmp_path: Path, form: str, where: str) -> None:
    size = 128 << 20
    big = numpy_helper.from_array(np.ones((size // 4096, 1024), np.float32), "w")
    proto = helper.make_model(helper.make_graph([], "g", [], [], [big]))
    path = save(proto, tmp_path / "big.onnx", external=where == "external")
    warm = save(everywhere(), tmp_path / "small.onnx")
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(path), str(warm), form],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    grown = int(done.stdout) * 1024
    assert grown < 4 << 20


# What goes wrong, and what is said about it.


def external(location: str, dims: list[int] | None = None, **entries: Any) -> onnx.ModelProto:
    proto = TP(name="w", data_type=TP.FLOAT, dims=[2, 3] if dims is None else dims)
    proto.data_location = TP.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        proto.external_data.add(key=key, value=str(value))
    return helper.make_model(helper.make_graph([], "g", [], [], [proto]))


def fails(source: Any, registry: WeightRegistry, error: type[Exception], **options: Any) -> str:
    with pytest.raises(error) as caught:
        load(source, registry, **options)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder next to a secret: ``model.onnx`` wants ``data``."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data").write_bytes(array(0, 2, 3).tobytes())
    (tmp_path / "secret").write_bytes(array(1, 2, 3).tobytes())
    return folder


def model_at(folder: Path, location: str, **entries: Any) -> Path:
    path = folder / "model.onnx"
    onnx.save(external(location, **entries), path)
    return path


def values(path: Path, registry: WeightRegistry, **options: Any) -> Any:
    return weight(load(path, registry, **options), "w").array


@pytest.mark.parametrize("location", ["data", "./data", "sub/../data", "sub/data"])
def test_data_in_the_models_folder(folder: Path, registry: WeightRegistry, location: str) -> None:
    (folder / "sub").mkdir()
    shutil.copy(folder / "data", folder / "sub" / "data")
    found = values(model_at(folder, location), registry)
    np.testing.assert_array_equal(found, array(0, 2, 3))


def test_data_is_found_from_any_working_folder(
    folder: Path, registry: WeightRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_at(folder, "data")
    monkeypatch.chdir(folder)
    np.testing.assert_array_equal(values(Path("model.onnx"), registry), array(0, 2, 3))
    monkeypatch.chdir(folder.parent)
    np.testing.assert_array_equal(values(Path("model/model.onnx"), registry), array(0, 2, 3))


def test_data_that_is_a_hard_link(folder: Path, registry: WeightRegistry) -> None:
    (folder / "link").hardlink_to(folder.parent / "secret")
    np.testing.assert_array_equal(values(model_at(folder, "link"), registry), array(1, 2, 3))


def test_data_next_to_the_file_that_a_linked_model_leads_to(
    folder: Path, registry: WeightRegistry, tmp_path: Path
) -> None:
    model_at(folder, "data")
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "current.onnx"
    link.symlink_to(folder / "model.onnx")
    np.testing.assert_array_equal(values(link, registry), array(0, 2, 3))


def test_a_folder_that_is_a_link(folder: Path, registry: WeightRegistry, tmp_path: Path) -> None:
    model_at(folder, "data")
    (tmp_path / "current").symlink_to(folder)
    found = values(tmp_path / "current" / "model.onnx", registry)
    np.testing.assert_array_equal(found, array(0, 2, 3))


@pytest.fixture
def hugging_face(tmp_path: Path) -> Path:
    """A cached repository: snapshots of links into a folder of blobs."""
    blobs = tmp_path / "hub" / "models--own--it" / "blobs"
    snapshot = blobs.parent / "snapshots" / "0123abcd"
    (snapshot / "onnx").mkdir(parents=True)
    blobs.mkdir()
    (blobs / "d1").write_bytes(array(0, 2, 3).tobytes())
    (snapshot / "model.onnx_data").symlink_to("../../blobs/d1")
    (snapshot / "onnx" / "model.onnx_data").symlink_to("../../../blobs/d1")
    onnx.save(external("model.onnx_data"), blobs / "m1")
    (snapshot / "model.onnx").symlink_to("../../blobs/m1")
    (snapshot / "onnx" / "model.onnx").symlink_to("../../../blobs/m1")
    shutil.copy(blobs / "m1", snapshot / "copy.onnx")
    shutil.copy(blobs / "m1", snapshot / "onnx" / "copy.onnx")
    return snapshot


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx", "copy.onnx", "onnx/copy.onnx"])
def test_the_hugging_face_cache(
    hugging_face: Path, registry: WeightRegistry, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.testing.assert_array_equal(values(hugging_face / name, registry), array(0, 2, 3))
    monkeypatch.chdir((hugging_face / name).parent)
    found = values(Path(Path(name).name), registry)
    np.testing.assert_array_equal(found, array(0, 2, 3))


def test_the_hugging_face_cache_is_no_way_out(
    hugging_face: Path, registry: WeightRegistry, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(bytes(24))
    (hugging_face / "model.onnx_data").unlink()
    (hugging_face / "model.onnx_data").symlink_to(tmp_path / "secret")
    for name in ("model.onnx", "copy.onnx"):
        assert "leads to" in fails(hugging_face / name, registry, InvalidGraph)
    other = tmp_path / "hub" / "models--other" / "blobs"
    other.mkdir(parents=True)
    (other / "x").write_bytes(bytes(24))
    (hugging_face / "model.onnx_data").unlink()
    (hugging_face / "model.onnx_data").symlink_to(other / "x")
    assert "leads to" in fails(hugging_face / "copy.onnx", registry, InvalidGraph)


def escapes(folder: Path) -> dict[str, str]:
    secret = folder.parent / "secret"
    (folder / "soft").symlink_to(secret)
    (folder / "loop").symlink_to("loop")
    (folder / "chain").symlink_to("soft")
    (folder / "up").symlink_to("..")
    (folder.parent / "model2").mkdir()
    (folder.parent / "model2" / "data").write_bytes(bytes(24))
    return {
        "../secret": str(secret),
        "sub/../../secret": str(secret),
        str(secret): str(secret),
        str(folder / "data"): str(folder / "data"),
        "soft": str(secret),
        "chain": str(secret),
        "up/secret": str(secret),
        "../model2/data": str(folder.parent / "model2" / "data"),
        "../../../../../../../../etc/passwd": "/etc/passwd",
        "/etc/passwd": "/etc/passwd",
        "/dev/zero": "/dev/zero",
    }


def test_data_that_lies_elsewhere_is_refused(folder: Path, registry: WeightRegistry) -> None:
    for location, target in escapes(folder).items():
        message = fails(model_at(folder, location), registry, InvalidGraph)
        assert message == (
            f"tensor 'w' has external data at {location!r}, which leads to {target}; "
            f"relative locations may lead into {folder}\n"
            "Hint: If you trust the model, allow it: "
            f"SessionOptions(allowed_roots=[{os.path.dirname(target)!r}])."  # noqa: PTH120
        )


def test_data_in_an_allowed_root(folder: Path, registry: WeightRegistry) -> None:
    secret = folder.parent / "secret"
    (folder / "soft").symlink_to(secret)
    for location in ("../secret", str(secret), "soft"):
        found = values(model_at(folder, location), registry, allowed_roots=[folder.parent])
        np.testing.assert_array_equal(found, array(1, 2, 3))
    assert "leads to" in fails(
        model_at(folder, "soft"), registry, InvalidGraph, allowed_roots=[folder / "sub"]
    )


def test_data_of_a_model_without_a_folder(folder: Path, registry: WeightRegistry) -> None:
    proto = external("data")
    for source in (proto, proto.SerializeToString()):
        found = weight(load(source, registry, allowed_roots=[folder]), "w")
        np.testing.assert_array_equal(found.array, array(0, 2, 3))
        assert fails(source, registry, InvalidGraph) == (
            "tensor 'w' has external data at 'data', but the model was not opened from a file, "
            "so there is no folder to look in\n"
            "Hint: Open the model by its path, or name the folder: "
            "SessionOptions(allowed_roots=[...])."
        )
    model = ir.from_proto(external("../secret"))
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    tensor.base_dir = folder
    assert "which leads to" in fails(model, registry, InvalidGraph)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 4}, "takes 24 bytes at offset 4 of {data}, which has only 24"),
        ({"offset": 10**30}, f"takes 24 bytes at offset {10**30} of {{data}}, which has only 24"),
        ({"length": 20}, ", FLOAT[2, 3], takes 24 bytes, but has 20 in 'data'"),
        ({"dims": [2, -3]}, ", FLOAT[2, -3], has a negative dimension"),
        ({"dims": [2**40, 2**40]}, "takes 4835703278458516698824704 bytes at offset 0 of {data}"),
        ({"dims": [1] * 65}, f", FLOAT{[1] * 65}, has 65 dimensions; numpy has at most 64"),
    ],
    ids=lambda value: str(value)[:25] if isinstance(value, dict) else "",
)
def test_data_that_does_not_fit(
    folder: Path, registry: WeightRegistry, entries: dict[str, Any], message: str
) -> None:
    text = fails(model_at(folder, "data", **entries), registry, InvalidGraph)
    expected = message.format(data=folder / "data")
    expected = f"tensor 'w'{expected}" if expected[0] == "," else f"tensor 'w' {expected}"
    assert text.startswith(expected)


@pytest.mark.parametrize("entries", [{"offset": -4}, {"length": -1}, {"offset": "all of it"}])
def test_entries_that_mean_nothing(
    folder: Path, registry: WeightRegistry, entries: dict[str, Any]
) -> None:
    message = fails(model_at(folder, "data", **entries), registry, InvalidGraph)
    assert " is not well-formed: " in message
    assert all(key in message or repr(value) in message for key, value in entries.items())


@pytest.mark.parametrize("location", ["", "a\0b"])
def test_data_at_no_place(folder: Path, registry: WeightRegistry, location: str) -> None:
    assert fails(model_at(folder, location), registry, InvalidGraph) == (
        f"tensor 'w' has external data at no place: {location!r}"
    )


def test_data_that_is_not_there(folder: Path, registry: WeightRegistry) -> None:
    assert fails(model_at(folder, "dta"), registry, InvalidGraph) == (
        f"tensor 'w' has its data in {folder / 'dta'}, which does not exist\n"
        "Hint: The folder has data."
    )
    assert fails(model_at(folder, "sub/x"), registry, InvalidGraph) == (
        f"tensor 'w' has its data in {folder / 'sub/x'}, which does not exist\n"
        f"Hint: The folder {folder / 'sub'} does not exist either."
    )
    (folder / "sub").mkdir()
    assert fails(model_at(folder, "sub"), registry, InvalidGraph).startswith(
        f"tensor 'w' has its data in {folder / 'sub'}, which is not a file"
    )
    (folder / "empty").touch()
    assert fails(model_at(folder, "empty"), registry, InvalidGraph) == (
        f"tensor 'w' has its data in {folder / 'empty'}, which is empty"
    )
    assert "which does not exist" in fails(model_at(folder, "x" * 300), registry, InvalidGraph)


def test_tensors_without_elements_need_no_data(folder: Path, registry: WeightRegistry) -> None:
    found = values(model_at(folder, "absent", dims=[0, 3]), registry)
    assert found.shape == (0, 3)


@pytest.mark.parametrize("count", [3, 100])
def test_inline_data_of_the_wrong_size(registry: WeightRegistry, count: int) -> None:
    proto = TP(name="w", data_type=TP.FLOAT, dims=[2, 3], raw_data=bytes(4 * count))
    data = helper.make_model(helper.make_graph([], "g", [], [], [proto])).SerializeToString()
    assert fails(data, registry, InvalidGraph) == (
        f"tensor 'w', FLOAT[2, 3], takes 24 bytes, but has {4 * count} in the model"
    )


def test_a_tensor_without_a_type(registry: WeightRegistry) -> None:
    proto = TP(name="w", dims=[2], raw_data=bytes(200))
    data = helper.make_model(helper.make_graph([], "g", [], [], [proto])).SerializeToString()
    assert fails(data, registry, InvalidGraph) == (
        "tensor 'w' is not well-formed: UNDEFINED elements have no fixed width"
    )


def test_data_in_the_field_of_another_type(registry: WeightRegistry) -> None:
    proto = helper.make_tensor("w", TP.FLOAT, [3], [1, 2, 3])
    proto.data_type = TP.UINT32
    data = helper.make_model(helper.make_graph([], "g", [], [], [proto])).SerializeToString()
    assert fails(data, registry, InvalidGraph).startswith("tensor 'w' is not well-formed: ")


def test_an_attribute_that_is_not_well_formed_is_named(registry: WeightRegistry) -> None:
    proto = TP(data_type=TP.FLOAT, dims=[2], raw_data=bytes(200))
    node = helper.make_node("Constant", [], ["c"], name="here", value=proto)
    data = helper.make_model(helper.make_graph([node], "g", [], [])).SerializeToString()
    assert fails(data, registry, InvalidGraph) == (
        "tensor 'value of here', FLOAT[2], takes 8 bytes, but has 200 in the model"
    )


def test_a_graph_that_contradicts_itself(registry: WeightRegistry) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name=name) for name in "ab"]
    data = helper.make_model(helper.make_graph(nodes, "g", [], [])).SerializeToString()
    message = fails(data, registry, InvalidGraph)
    assert message.startswith("the model is not well-formed: Output 'y' is redeclared")


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


def test_a_model_that_is_not_there(folder: Path, registry: WeightRegistry) -> None:
    model_at(folder, "data")
    assert fails(folder / "modle.onnx", registry, NoSuchFile) == (
        f"there is no model at {folder / 'modle.onnx'}\nHint: The folder has model.onnx."
    )
    assert fails(folder / "x" / "m.onnx", registry, NoSuchFile) == (
        f"there is no model at {folder / 'x' / 'm.onnx'}\n"
        f"Hint: The folder {folder / 'x'} does not exist either."
    )
    assert "path is empty" in fails("", registry, NoSuchFile)
    assert "Download" in fails("https://example.com/m.onnx", registry, NoSuchFile)
    assert "expanduser" in fails("~/nowhere/m.onnx", registry, NoSuchFile)
    assert fails(folder / "zzzzzz", registry, NoSuchFile) == (
        f"there is no model at {folder / 'zzzzzz'}"
    )
    assert fails(folder, registry, NoSuchFile) == (
        f"{folder} is a folder, not a model\nHint: The folder has model.onnx."
    )


def test_a_source_that_is_none(registry: WeightRegistry) -> None:
    assert fails(7, registry, InvalidArgument) == (
        "a model is a path, bytes, an onnx.ModelProto or an onnx_ir.Model, not int"
    )


def zipped(member: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(member, bytes(99))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "what", "mend"),
    [
        (b"", "empty", "completed?"),
        (bytes(5000), "nothing but zeros", "completed?"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n",
         "a Git LFS pointer", "git lfs pull"),
        (gzip.compress(b"x" * 99), "a gzip file", "Decompress"),
        (zipped("archive/data.pkl"), "what torch.save writes", "torch.onnx"),
        (zipped("x.npy"), "arrays of numpy's", "inputs"),
        (zipped("folder/model.onnx"), "a zip archive that holds one", "Extract"),
        (pickle.dumps([1]), "a Python pickle", "torch.onnx"),
        (b"\x18\x00\x00\x00ORTM" + bytes(99), "an .ort file", "ort_format"),
        (b"\x20\x00\x00\x00\x00\x00\x00\x00" + b'{"w":{"dtype":"F32"}}'.ljust(99),
         "a safetensors file: weights without a graph", "Export"),
        (b"<!DOCTYPE html><html>not found</html>", "a web page", "downloaded?"),
        (b'{"error":  "Repository not found"}', "text: '{\"error\": \"Repository", "downloaded?"),
        (b"ir_version: 7\ngraph {}", "an ONNX model as text", "textproto"),
        (b"just some words about nothing\n" * 20, "text: 'just some words", "downloaded?"),
        (b"GGUF" + bytes(99), "a GGUF file", "ONNX"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(99), "a TensorFlow Lite model", "tf2onnx"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_other_files(
    registry: WeightRegistry, tmp_path: Path, content: bytes, what: str, mend: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for source, name in ((path, str(path)), (content, "the buffer")):
        message, hint = fails(source, registry, InvalidProtobuf).splitlines()
        assert message.startswith(f"{name} is not an ONNX model but {what}")
        assert mend in hint


def test_a_truncated_model_says_where_it_ends(registry: WeightRegistry, tmp_path: Path) -> None:
    path = save(everywhere(), tmp_path / "model.onnx")
    data = path.read_bytes()
    path.write_bytes(data[:5000])
    message, hint = fails(path, registry, InvalidProtobuf).splitlines()
    offset = data.index(b"\x3a", 2) + 1
    assert hint == "Hint: Was the download or copy of the file completed?"
    assert message == (
        f"{path} is not an ONNX model: at byte {offset}: "
        f"expected a length up to {5000 - offset - 2}, found {int(message.rsplit(maxsplit=1)[-1])}"
    )


def test_damage_that_only_protobuf_sees_is_placed_too(registry: WeightRegistry) -> None:
    node = b"\x0a\x01x\x12\x01y\x22\x04Re"
    graph = b"\x0a" + varint(len(node)) + node + b"\x12\x01g"
    data = b"\x08\x0a\x3a" + varint(len(graph)) + graph
    message = fails(data, registry, InvalidProtobuf)
    assert message == (
        "the buffer is not an ONNX model: at byte 13: expected a length up to 2, found 4\n"
        "Hint: Was it changed on its way? Compare its size with the original's."
    )


def test_a_big_endian_machine_is_told(
    registry: WeightRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(RuntimeError, match="little-endian and this machine is big-endian"):
        load(everywhere(), registry)


def test_long_lists_of_numbers_are_as_in_the_file(registry: WeightRegistry) -> None:
    lists = {"coefficients": array(0, 3000).tolist(), "vectors": list(range(-2000, 2000)), "n": [1]}
    nodes = [
        helper.make_node("Identity", ["x"], ["h"]),
        helper.make_node("Any", ["h"], ["y"], "it", domain="ai.onnx.ml", **lists),
    ]
    values = [helper.make_tensor_value_info(name, TP.FLOAT, None) for name in "xy"]
    proto = helper.make_model(helper.make_graph(nodes, "test", values[:1], values[1:]))
    read = load(proto.SerializeToString(), registry)
    assert ir.serde.serialize_node(read.graph[1]) == proto.graph.node[1]
    assert dict(read.graph[1].attributes) == dict(load(proto, registry).graph[1].attributes)
