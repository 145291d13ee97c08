"""A session's view of a device: the stream its transfers and kernels are ordered by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenonnx.planning.device_arrays import ExposesArrays

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tenonnx.operators import Array
    from tenonnx.weights.weight import Weight
    from tenonnx_cuda.platform import NDArray, Platform, Stream
    from tenonnx_cuda.weights.device_weights import DeviceWeights
    from tenonnx_cuda.weights.uploads import Upload


class CudaDevice(ExposesArrays):
    """A device, as the runtime's interface. All that have one ``id`` share its weights.

    Args:
        platform: The device.
        stream: Where transfers are ordered.
        weights: The weights that are there.
        settled: Wait for every upload, for callers who go on with another stream.
    """

    def __init__(
        self, platform: Platform, stream: Stream, weights: DeviceWeights, *, settled: bool = False
    ) -> None:
        self.id = platform.id
        self.platform = platform
        self.stream = stream
        self.weights = weights
        self._settled = settled
        self._underway: list[Upload] = []

    def expect(self, uploads: Iterable[Upload]) -> None:
        """Note weights that the session's own steps read and may be underway."""
        self._underway += uploads

    def _arrive(self) -> None:
        """Make the stream wait for those weights: an output may be one."""
        for upload in tuple(self._underway):
            upload.before(self.stream)
        self._underway.clear()

    def upload(self, array: NDArray) -> Array:
        """Copy a host array to the device."""
        with self.stream.active():
            there = self.platform.to_device(array)
        if self._settled:
            self.stream.synchronize()
        return there

    def download(self, array: Array) -> NDArray:
        """Copy an array to the host once everything before it is done."""
        with self.stream.active():
            return self.platform.to_host(array)

    def stack(self, arrays: list[Any], axis: int) -> Array:
        """Join arrays of one shape along a new axis."""
        with self.stream.active():
            return self.platform.xp.stack(arrays, axis)

    def place(self, weight: Weight) -> Array:
        """Return a weight's array on the device, for all sessions the same bytes.

        They may be underway: steps wait for them, and others call ``synchronize`` first.
        """
        return self.weights.array(weight, wait=self._settled)

    def copy(self, array: Array) -> Array:
        """Return an array of its own with the same contents."""
        self._arrive()
        with self.stream.active():
            fresh = array.copy()
        self.stream.synchronize()
        return fresh

    def write(self, target: Array, source: Array) -> None:
        """Overwrite an array with another one."""
        self._arrive()
        with self.stream.active():
            target[...] = source
        self.stream.synchronize()

    def adopt(self, data: Any) -> Array:
        """Return an array over another library's memory on this device, by DLPack."""
        return self.platform.adopt(data)

    def at(self, address: int, dtype: Any, shape: tuple[int, ...]) -> Array:
        """Return an array over memory at an address, which the caller keeps."""
        return self.platform.at(address, dtype, shape)

    def contiguous(self, array: Array) -> Array:
        """Return an array whose elements lie in order: itself, or a copy."""
        return array if array.__cuda_array_interface__.get("strides") is None else self.copy(array)

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        return int(array.__cuda_array_interface__["data"][0])

    def shares(self, one: Array, other: Array) -> bool:
        """Return whether two arrays may have memory in common."""
        return bool(self.platform.xp.may_share_memory(one, other))

    def synchronize(self) -> None:
        """Wait until everything that was started is done."""
        self._arrive()
        self.stream.synchronize()
