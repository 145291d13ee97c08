"""The weights that are on a device: every byte of them once, for all sessions of the process."""

from __future__ import annotations

import mmap
import threading
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.storage import is_packed
from tenonnx.weights.weight import Weight
from tenonnx_cuda.platform import Block, Platform, View
from tenonnx_cuda.weights.allocations import Allocation, Stretch, merged, pack, stretch_of
from tenonnx_cuda.weights.staging import Staging
from tenonnx_cuda.weights.uploads import Upload

if TYPE_CHECKING:
    from tenonnx_cuda.weights.sharing import Exchange


# The name of threads that copy weights.
UPLOAD: Final = "tenonnx-upload"


class Extent:
    """A stretch of bytes that is on the device.

    Attributes:
        stretch: Which bytes.
        block: Their allocation.
        offset: Their offset in it.
    """

    __slots__ = ("__weakref__", "block", "offset", "stretch")

    def __init__(self, stretch: Stretch, block: Block, offset: int) -> None:
        self.stretch = stretch
        self.block = block
        self.offset = offset

    def serves(self, wanted: Stretch, width: int) -> bool:
        """Return whether it has all of a stretch, at a multiple of its elements' width."""
        here = self.stretch
        inside = here.start <= wanted.start and wanted.stop <= here.stop
        return inside and (self.offset + wanted.start - here.start) % width == 0


class DeviceWeights:
    """The weights of a process on one device.

    An extent lives as long as a weight in it does; an allocation, as long as an extent in it.

    Args:
        platform: The device.
        staging: How bytes get there.
        mapped: Let the device read the host's memory, where it can.
        exchange: What processes share.
    """

    def __init__(
        self,
        platform: Platform,
        staging: Staging | None = None,
        *,
        mapped: bool = False,
        exchange: Exchange | None = None,
    ) -> None:
        self._platform = platform
        self._staging = staging or Staging(platform)
        self._mapped = mapped
        self._exchange = exchange
        self._extents: dict[str, weakref.WeakSet[Extent]] = defaultdict(weakref.WeakSet)
        self._held: weakref.WeakKeyDictionary[Weight, Extent] = weakref.WeakKeyDictionary()
        self._uploads: weakref.WeakKeyDictionary[Block, Upload] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()

    @property
    def nbytes(self) -> int:
        """Bytes of the allocations."""
        with self._lock:
            blocks = {id(e.block): e.block for extents in self._extents.values() for e in extents}
            return sum(block.nbytes for block in blocks.values())

    def preload(self, weights: Iterable[Weight], *, wait: bool = True) -> None:
        """Bring weights to the device, all together.

        Args:
            weights: Those that are there already stay where they are.
            wait: Return when they are there; or when there is room, and they are underway.

        Raises:
            OutOfDeviceMemoryError: They do not fit; none of them is kept.
        """
        with self._lock:
            wanted = [weight for weight in dict.fromkeys(weights) if weight.nbytes]
            send = self._bring([weight for weight in wanted if self._find(weight) is None])
            uploads = dict.fromkeys(map(self.upload, wanted)) if wait else {}
        # Outside of the lock: other sessions find and wait for their weights during the copy.
        if send is not None and wait:
            send()
        elif send is not None:
            threading.Thread(target=send, name=UPLOAD).start()
        for upload in uploads:
            if upload is not None:
                upload.wait()

    def _bring(self, absent: Sequence[Weight]) -> Callable[[], None] | None:
        """Make room for weights; return what fills it, if there is anything to copy."""
        for key in [key for key, extents in self._extents.items() if not extents]:
            del self._extents[key]
        if self._mapped:
            absent = [w for w in absent if self._find(w) is None and not self._map(w)]
        kept: list[Extent] = []
        copies = []
        for allocation in pack(merged(stretch_of(weight) for weight in absent)):
            if self._exchange is not None:
                self._share(allocation, self._exchange, kept)
                continue
            block = self._platform.allocate(allocation.nbytes)
            for offset, stretch in allocation.parts:
                kept.append(Extent(stretch, block, offset))
                copies.append((stretch, block, offset))
        for extent in kept:
            self._note(extent)
        send = self._sender(copies, kept) if copies else None
        for weight in absent:
            self._hold(weight)
        return send

    def _sender(
        self, copies: Sequence[tuple[Stretch, Block, int]], kept: Sequence[Extent]
    ) -> Callable[[], None]:
        """Return a function that copies, and returns when all bytes have arrived."""
        uploads = {id(block): Upload() for _, block, _ in copies}
        for _, block, _ in copies:
            self._uploads[block] = uploads[id(block)]

        def send() -> None:
            try:
                self._staging.copy(copies, lambda block, event: uploads[id(block)].start(event))
            except BaseException as error:
                for extent in kept:
                    self._forget(extent)
                for upload in uploads.values():
                    upload.fail(error)
            else:
                with self._lock:
                    for _, block, _ in copies:
                        self._uploads.pop(block, None)

        return send

    def _forget(self, extent: Extent) -> None:
        """Forget an extent whose bytes will not arrive; its weights are uploaded anew."""
        with self._lock:
            self._extents[extent.stretch.storage.key].discard(extent)
            for weight in [w for w, held in self._held.items() if held is extent]:
                del self._held[weight]
                weight.uploads.pop(self._platform.id, None)

    def upload(self, weight: Weight) -> Upload | None:
        """Return what a weight is waited for by; ``None`` if it is there."""
        with self._lock:
            extent = self._held.get(weight)
            return None if extent is None else self._uploads.get(extent.block)

    def array(self, weight: Weight, *, wait: bool = True) -> Array:
        """Return a weight's array; it is brought to the device if it is not there.

        Elements narrower than a byte are flat packed bytes.

        Args:
            weight: The weight.
            wait: Return when its elements are there, even if they are underway already.

        Raises:
            OutOfDeviceMemoryError: It does not fit.
        """
        shape, strides = weight.shape, weight.strides
        dtype: np.dtype[Any] = weight.dtype.numpy()
        if is_packed(weight.dtype):
            dtype, shape, strides = np.dtype(np.uint8), (weight.nbytes,), None
        if not weight.nbytes:
            return self._platform.to_device(np.empty(shape, dtype))
        with self._lock:
            underway = self._find(weight) is not None
        self.preload([weight], wait=wait or not underway)
        with self._lock:
            extent = self._find(weight)
            if extent is None:
                extent = self._alone(weight)
        offset = extent.offset + weight.offset - extent.stretch.start
        return self._platform.array(extent.block, View(offset, dtype, shape, strides))

    def _share(self, allocation: Allocation, exchange: Exchange, kept: list[Extent]) -> None:
        """Bring an allocation to the device, or find it there in another process."""

        def fill(block: Block) -> None:
            self._staging.copy([(stretch, block, offset) for offset, stretch in allocation.parts])

        block = exchange.block(allocation, fill)
        kept += [self._note(Extent(stretch, block, offset)) for offset, stretch in allocation.parts]

    def _stands(self, extent: Extent) -> bool:
        return self._exchange is None or self._exchange.stands(extent.block)

    def _find(self, weight: Weight) -> Extent | None:
        wanted, width = stretch_of(weight), max(1, weight.dtype.bitwidth // 8)
        if (held := self._held.get(weight)) is not None and self._stands(held):
            return held
        for extent in tuple(self._extents[wanted.storage.key]):
            if extent.serves(wanted, width) and self._stands(extent):
                self._held[weight] = extent
                return extent
        return None

    def _hold(self, weight: Weight) -> None:
        """Tie a weight to the extent that has it; one that is not aligned there gets its own."""
        if self._find(weight) is None:
            self._alone(weight)

    def _alone(self, weight: Weight) -> Extent:
        stretch = stretch_of(weight)
        block = self._platform.allocate(stretch.nbytes)
        self._staging.copy([(stretch, block, 0)])
        extent = self._held[weight] = self._note(Extent(stretch, block, 0))
        return extent

    def _note(self, extent: Extent) -> Extent:
        self._extents[extent.stretch.storage.key].add(extent)
        return extent

    def _map(self, weight: Weight) -> bool:
        """Map the file of a weight for the device; return whether that is possible.

        Other memory is copied: its first and last page may be somebody else's, too, and CUDA takes
        no page twice.
        """
        storage = weight.storage
        if not weight.is_aligned or not isinstance(storage, Mapping):
            return False
        first = storage.address // mmap.PAGESIZE * mmap.PAGESIZE
        lead = storage.address - first
        try:
            block = self._platform.map_host(first, lead + storage.size, storage)
        except OSError as error:
            self._mapped = False
            warnings.warn(f"weights are copied to the device: {error}", stacklevel=2)
            return False
        extent = Extent(Stretch(storage, 0, storage.size), block, lead)
        self._held[weight] = self._note(extent)
        return True


_device_weights: weakref.WeakKeyDictionary[Platform, dict[str, DeviceWeights]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()


def device_weights_on(platform: Platform, way: str) -> DeviceWeights:
    """Return the weights of the process on a device.

    Args:
        platform: The device.
        way: What the option ``weights`` says.
    """
    with _lock:
        ways = _device_weights.setdefault(platform, {})
        if way not in ways:
            exchange = exchange_on(platform) if way == "shared" else None
            ways[way] = DeviceWeights(platform, mapped=way == "mapped", exchange=exchange)
        return ways[way]


def exchange_on(platform: Platform) -> Exchange | None:
    """Return what processes share on a device; ``None``, with a warning, where they cannot."""
    from tenonnx_cuda.weights.sharing import Exchange

    try:
        return Exchange(platform)
    except OSError as error:
        warnings.warn(f"weights are not shared among processes: {error}", stacklevel=2)
        return None
