"""OrtValue: a tensor, sequence, map, sparse tensor or absent optional, wherever it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.errors import InvalidArgument, NotSupported
from tenonnx.interface.named_devices import find_device
from tenonnx.interface.value_types import describe_value, element_dtype, is_sparse, onnx_type
from tenonnx.planning.device_arrays import downloaded, exposes_arrays, wait_for
from tenonnx.provider import HOST, Device

if TYPE_CHECKING:
    from tenonnx.interface.devices import OrtDevice, OrtMemoryInfo
    from tenonnx.interface.signature import NodeArg
    from tenonnx.interface.sparse_tensor import SparseTensor
    from tenonnx.planning.program import Program

NDArray = np.ndarray[Any, np.dtype[Any]]

# DLPack's number of CUDA's memory.
CUDA = 2


class OrtValue:
    """A value of a model, on some device.

    Args:
        value: An array of the device; a list, dict, ``SparseTensor`` or ``None`` on the host.
        device: Where it is.
    """

    __slots__ = ("__weakref__", "device", "value")

    def __init__(self, value: Any, device: Device = HOST) -> None:
        self.value = value
        self.device = device

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: NDArray,
        /,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Return a value over an array: the array itself on the host, a copy elsewhere.

        Args:
            numpy_obj: An array of any shape, of a dtype that ONNX has; ``str`` or ``object`` for
                strings.
            device_type: ``cpu``, ``cuda`` or another type of device, such as the alias of a
                plug-in's provider; or an ``OrtDevice``, as the class of this name in C takes it.
            device_id: The device's number, beside a type.
            vendor_id: Without effect.

        Raises:
            InvalidArgument, EPFail: There is no such device here.
        """
        del vendor_id
        device = find_device(device_type, device_id)
        array = np.asarray(numpy_obj)
        if array.dtype.kind in "US":
            array = array.astype(str).astype(object)
        return OrtValue(device.upload(array), device)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: NDArray, /, onnx_element_type: int) -> OrtValue:
        """Return a value whose elements are an array's bits, read as an ONNX type.

        Args:
            data: An array whose elements have the type's size: uint16 for bfloat16, for example.
            onnx_element_type: The type's number in ``onnx.TensorProto``.

        Raises:
            InvalidArgument: The array's elements are of another size.
        """
        import onnx_ir as ir

        dtype = ir.DataType(onnx_element_type).numpy()
        if dtype.itemsize != data.dtype.itemsize:
            raise InvalidArgument(
                f"elements of {data.dtype} take {data.dtype.itemsize} bytes; "
                f"{ir.DataType(onnx_element_type).name} takes {dtype.itemsize}"
            )
        return OrtValue(data if data.dtype == dtype else data.view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Return a tensor of zeros.

        Args:
            shape: Its sizes.
            element_type: A numpy dtype, or a number of ``onnx.TensorProto``.
            device_type: ``cpu``, ``cuda`` or another type of device; or an ``OrtDevice``, as the
                class of this name in C takes it.
            device_id: The device's number, beside a type.
            vendor_id: Without effect.
            memory_info: The device's name and number, in place of both.

        Raises:
            InvalidArgument, EPFail: There is no such device here.
        """
        del vendor_id
        if memory_info is not None:
            device_type, device_id = memory_info.name.lower(), memory_info.device_id
        device = find_device(device_type, device_id)
        return OrtValue(device.upload(np.zeros(tuple(shape), element_dtype(element_type))), device)

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type

    @staticmethod
    def ortvalue_from_shape_and_type_for_memory_info(
        shape: Sequence[int], element_type: Any, memory_info: OrtMemoryInfo
    ) -> OrtValue:
        """Return a tensor of zeros in a kind of memory; see ``ortvalue_from_shape_and_type``."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, memory_info=memory_info)

    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type_for_memory_info

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: SparseTensor) -> OrtValue:
        """Return a value over a sparse tensor."""
        return OrtValue(sparse_tensor)

    @staticmethod
    def from_dlpack(data: Any, /, device: Device | None = None) -> OrtValue:
        """Return a value over another library's array, where it is, with no copy.

        Args:
            data: An array with ``__dlpack__`` and ``__dlpack_device__``, such as a torch tensor.
            device: Where the value is to be, if that is neither the host nor CUDA: a session's
                ``device``. An array of the host is copied to it.

        Raises:
            NotSupported: The device takes no memory of the other one.
        """
        if device is None:
            kind, number = data.__dlpack_device__()
            if int(kind) != CUDA:
                return OrtValue(np.from_dlpack(data))
            device = find_device("cuda", int(number))
        if not exposes_arrays(device):
            return OrtValue(np.from_dlpack(data), device)
        return OrtValue(device.adopt(data), device)

    def __dlpack__(self, **options: Any) -> Any:
        """Lend the memory to another library; a copy on the host if the device cannot.

        Raises:
            InvalidArgument: The value is no tensor.
        """
        if options.get("stream") is None:
            options.pop("stream", None)
        return self._exported().__dlpack__(**options)

    def to_dlpack(self) -> Any:
        """Lend the memory to another library, as ``__dlpack__`` does."""
        return self.__dlpack__()

    def _is_webgpu_buffer(self) -> bool:
        """Return whether the memory is WebGPU's: there is none here."""
        return False

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where the memory is, in DLPack's numbers."""
        kind, number = self._exported().__dlpack_device__()
        return int(kind), int(number)

    def _exported(self) -> Any:
        """Return an array that other libraries take: the tensor, or a copy on the host."""
        array = self._tensor()
        if not hasattr(array, "__dlpack__"):
            return downloaded(self.device, array)
        wait_for(array)
        return array

    def numpy(self) -> Any:
        """Return the array: the tensor itself on the host, a copy of one that is elsewhere.

        Raises:
            InvalidArgument: The value is sparse.
        """
        if is_sparse(self.value):
            raise InvalidArgument("the value is sparse", hint="see as_sparse_tensor()")
        if self.value is None or isinstance(self.value, list | dict):
            return self.value
        return downloaded(self.device, self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        array = np.asarray(self.numpy(), dtype)
        return array.copy() if copy else array

    def as_sparse_tensor(self) -> SparseTensor:
        """Return the sparse tensor.

        Raises:
            InvalidArgument: The value is none.
        """
        if not is_sparse(self.value):
            raise InvalidArgument(f"the value is {self.data_type()}, not sparse")
        return self.value

    def data_ptr(self) -> int:
        """Return the address of the first element; the others follow it in order.

        An array that lies otherwise, as a transposed one, is copied, and the copy kept.

        Raises:
            InvalidArgument: The value is no tensor.
            NotSupported: Memory of its device has no addresses.
        """
        array = self._tensor()
        if isinstance(array, np.ndarray):
            if not array.flags.c_contiguous:
                array = self.value = np.ascontiguousarray(array)
            return int(array.ctypes.data)
        if not exposes_arrays(self.device):
            raise NotSupported(f"memory of {self.device.id} has no addresses")
        wait_for(array)
        array = self.value = self.device.contiguous(array)
        return self.device.address(array)

    def shape(self) -> list[int]:
        """Return the tensor's sizes, one for each axis.

        Raises:
            InvalidArgument: The value is no tensor.
        """
        if is_sparse(self.value):
            return self.value.dense_shape()
        return list(self._tensor().shape)

    def element_type(self) -> int:
        """Return the element type's number in ``onnx.TensorProto``: 1 for float32.

        Raises:
            InvalidArgument: The value is no tensor.
        """
        return int(onnx_type(self._tensor()))

    def data_type(self) -> str:
        """Return the type's name: ``tensor(float)``, ``seq(tensor(int64))``, ..."""
        return describe_value(self.value)

    def tensor_size_in_bytes(self) -> int:
        """Return how many bytes the tensor takes."""
        return int(self._tensor().nbytes)

    def device_name(self) -> str:
        """Return where the value is: ``cpu``, ``cuda``, ..."""
        return self.device.id.partition(":")[0]

    def has_value(self) -> bool:
        """Return whether it is anything but an absent optional."""
        return self.value is not None

    def is_tensor(self) -> bool:
        """Return whether it is a dense tensor."""
        return not (
            self.value is None or isinstance(self.value, list | dict) or self.is_sparse_tensor()
        )

    def is_tensor_sequence(self) -> bool:
        """Return whether it is a sequence."""
        return isinstance(self.value, list)

    def is_sparse_tensor(self) -> bool:
        """Return whether it is a sparse tensor."""
        return is_sparse(self.value)

    def update_inplace(self, data: Any) -> None:
        """Overwrite the tensor with an array or another value.

        Args:
            data: An array or ``OrtValue`` of the same shape and dtype, on any device.

        Raises:
            InvalidArgument: Shape or type differ, or the tensor is read-only.
        """
        target = self._tensor()
        here = isinstance(data, OrtValue) and data.device.id == self.device.id
        if here and self.device is not HOST and hasattr(self.device, "write"):
            self._overwrite(target, data._tensor())
            return
        source = data.numpy() if isinstance(data, OrtValue) else np.asarray(data)
        if source.dtype.kind in "US":
            source = source.astype(object)
        if self.device is not HOST:
            self._overwrite(target, source)
            return
        _check_same(target, source)
        if target.flags.writeable:
            np.copyto(target, source)
        else:
            raise InvalidArgument("the tensor is read-only: weights and views of them are")

    def _overwrite(self, target: Any, source: Any) -> None:
        """Write an array of the host, or of the device, into the one that is there."""
        _check_same(target, source)
        there = self.device.upload(source) if isinstance(source, np.ndarray) else source
        if (write := getattr(self.device, "write", None)) is not None:
            write(target, there)
        else:
            target[...] = there

    def _tensor(self) -> Any:
        if not self.is_tensor():
            raise InvalidArgument(f"the value is {self.data_type()}, not a tensor")
        return self.value

    @property
    def _ortvalue(self) -> OrtValue:
        """The value: clients of onnxruntime reach for its inner object, which is one with this."""
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the contents; the copy is on the host."""
        return OrtValue, (self.value if is_sparse(self.value) else self.numpy(),)

    def __repr__(self) -> str:
        shape = self.shape() if self.is_tensor() else ""
        return f"<OrtValue {self.data_type()}{shape} on {self.device.id}>"


def _check_same(target: Any, source: Any) -> None:
    if tuple(source.shape) != tuple(target.shape) or source.dtype != target.dtype:
        raise InvalidArgument(
            f"expected {target.dtype}{list(target.shape)} to write in place, "
            f"got {source.dtype}{list(source.shape)}"
        )


class OrtValueVector(list[OrtValue]):
    """A list of values with the names that onnxruntime gives its methods."""

    def push_back(self, value: OrtValue) -> None:
        """Append a value."""
        self.append(value)

    def reserve(self, size: int) -> None:
        """Do nothing: lists grow by themselves."""

    def shrink_to_fit(self) -> None:
        """Do nothing: lists shrink by themselves."""


def device_inputs(feeds: Mapping[str, Any]) -> dict[str, OrtValue]:
    """Return the inputs that are tensors on a device whose arrays can be used as they are."""
    return {
        name: given
        for name, given in feeds.items()
        if isinstance(given, OrtValue) and exposes_arrays(given.device) and given.is_tensor()
    }


def homes_of(
    program: Program, outputs: Sequence[NodeArg], there: Mapping[str, OrtValue]
) -> list[Device]:
    """Return where each output is made, if that is a device of some inputs; else the host.

    Args:
        program: The session's.
        outputs: Its outputs.
        there: The inputs.
    """
    ids = {given.device.id for given in there.values()}
    homes = [program.home_of(value) or HOST for value in program.outputs]
    return [
        home if home.id in ids and argument.type.startswith("tensor") else HOST
        for home, argument in zip(homes, outputs, strict=True)
    ]


def copy_tensors(src: Iterable[OrtValue], dst: Iterable[OrtValue], stream: Any = None) -> None:
    """Copy tensors into others of the same shapes and types, between devices too.

    Raises:
        InvalidArgument: A pair differs in shape or type, or there is one too many.
    """
    del stream
    sources, targets = list(src), list(dst)
    if len(sources) != len(targets):
        raise InvalidArgument(f"{len(sources)} tensors to copy into {len(targets)}")
    for source, target in zip(sources, targets, strict=True):
        target.update_inplace(source)
