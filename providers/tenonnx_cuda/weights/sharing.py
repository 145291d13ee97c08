"""One copy of the weights on a device for several processes, by CUDA's interprocess handles.

Whoever needs an allocation first fills it and offers it to the others. Locks on files say who is
alive, and the system takes them from a process however that ends:

    KEY.gate    held while an allocation is filled or opened, so that the others wait for it
    KEY.owner   held by who offers it, as long as it does
    KEY.users   shared by those who have opened it; with no more of them it may be freed
    KEY.offer   what they need to open it, as JSON

Whatever fails on the way, a process then has a copy of its own.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenonnx.weights.digest import digest
from tenonnx.weights.mapping import Mapping
from tenonnx_cuda.platform import Block, Platform
from tenonnx_cuda.weights.allocations import Allocation

# Allocations that are worth a handle: smaller ones lie beside those of others in a page.
LEAST_BYTES: Final = 1 << 20

# Bytes of a device's page, of which one that is opened elsewhere is a whole number.
PAGE_BYTES: Final = 2 << 20

WAIT_SECONDS: Final = 60.0
TURN_SECONDS: Final = 0.01

log = logging.getLogger("tenonnx")


class Hold:
    """An owner of shared memory: after its last user, a function is called."""

    def __init__(self, let_go: Callable[[], None]) -> None:
        weakref.finalize(self, let_go).atexit = False


@dataclass
class Offer:
    """An allocation of this process's that others may open.

    Attributes:
        block: It.
        lock: Says that it is offered.
        hold: What its users in this process hold, if there are any.
    """

    block: Block
    lock: Lock
    hold: Callable[[], Hold | None] = lambda: None


class Exchange:
    """The allocations of a device that processes share.

    Args:
        platform: The device.
        folder: Where their files are; one that only this user can read if ``None``.
        wait: Seconds to wait for another process that fills an allocation.
    """

    def __init__(
        self, platform: Platform, folder: Path | None = None, wait: float = WAIT_SECONDS
    ) -> None:
        self._platform = platform
        self._folder = folder or own_folder()
        self._wait = wait
        self._offers: dict[str, Offer] = {}
        self._lock = threading.RLock()
        _exchanges.add(self)

    def block(self, allocation: Allocation, fill: Callable[[Block], None]) -> Block:
        """Return a block with an allocation's bytes, which ``fill`` has copied or another process.

        Raises:
            OutOfDeviceMemoryError: There is no room for one.
        """
        key = self._key(allocation)
        if key is None:
            return self._own(allocation, fill)
        with self._lock:
            self.sweep()
            if (offer := self._offers.get(key)) is not None:
                return self._lent(offer)
            try:
                with locked(self._path(key, "gate"), fcntl.LOCK_EX, self._wait):
                    if (opened := self._opened(key, allocation)) is not None:
                        return opened
                    block = self._platform.allocate(
                        -(-allocation.nbytes // PAGE_BYTES) * PAGE_BYTES
                    )
                    fill(block)
                    return self._offered(key, block)
            except OSError as error:
                # Its text alone: a record that is kept would hold the error's frames, and memory.
                log.warning("weights on %s are not shared: %s", self._platform.id, str(error))
                return self._own(allocation, fill)

    def stands(self, block: Block) -> bool:
        """Return whether a block may go on being handed out: whoever offered it still does."""
        key = _opened_here.get(block)
        return key is None or is_locked(self._path(key, "owner"))

    def sweep(self) -> None:
        """Free what was offered and nobody uses, in this process or another."""
        with self._lock:
            for key, offer in list(self._offers.items()):
                if offer.hold() is None:
                    self._free(key, offer)

    def disown(self) -> None:
        """Forget all offers, which are another process's: this one is its child."""
        self._offers.clear()
        self._lock = threading.RLock()

    def _own(self, allocation: Allocation, fill: Callable[[Block], None]) -> Block:
        block = self._platform.allocate(allocation.nbytes)
        fill(block)
        return block

    def _key(self, allocation: Allocation) -> str | None:
        """Name an allocation's bytes for all processes; ``None`` if only this has them."""
        if allocation.nbytes < LEAST_BYTES:
            return None
        names = [self._platform.uuid]
        for offset, stretch in allocation.parts:
            if not isinstance(stretch.storage, Mapping):
                return None
            names.append(f"{offset} {stretch.storage.key} {stretch.start} {stretch.stop}")
        return digest("\n".join(names))[:32]

    def _path(self, key: str, what: str) -> Path:
        return self._folder / f"{key}.{what}"

    def _opened(self, key: str, allocation: Allocation) -> Block | None:
        """Return another process's allocation; ``None`` if nobody alive offers one.

        Raises:
            OSError: It cannot be opened here.
        """
        if not is_locked(self._path(key, "owner")):
            return None
        try:
            record = json.loads(self._path(key, "offer").read_text())
            handle = bytes.fromhex(record["handle"])
        except (FileNotFoundError, ValueError, KeyError):
            return None
        lease = taken(self._path(key, "users"), fcntl.LOCK_SH)
        try:
            block = self._platform.open(handle, allocation.nbytes, lease.release)
        except BaseException:
            lease.release()
            raise
        _opened_here[block] = key
        return block

    def _offered(self, key: str, block: Block) -> Block:
        """Offer an allocation; if that fails it is this process's alone."""
        try:
            record = {"handle": self._platform.export(block).hex()}
            lock = taken(self._path(key, "owner"), fcntl.LOCK_EX)
            try:
                draft = self._path(key, f"{os.getpid()}")
                draft.write_text(json.dumps(record))
                draft.rename(self._path(key, "offer"))
            except OSError:
                lock.release()
                raise
        except OSError as error:
            log.warning("weights on %s are not shared: %s", self._platform.id, str(error))
            return block
        offer = self._offers[key] = Offer(block, lock)
        return self._lent(offer)

    def _lent(self, offer: Offer) -> Block:
        hold = offer.hold()
        if hold is None:
            hold = Hold(self.sweep)
            offer.hold = weakref.ref(hold)
        return self._platform.lend(offer.block, hold)

    def _free(self, key: str, offer: Offer) -> None:
        """Free an allocation that has no user anywhere; one that is in use waits for a sweep."""
        try:
            with (
                locked(self._path(key, "gate"), fcntl.LOCK_EX, 0),
                locked(self._path(key, "users"), fcntl.LOCK_EX, 0),
            ):
                self._path(key, "offer").unlink(missing_ok=True)
                del self._offers[key]
                offer.lock.release()
        except OSError:
            return


_exchanges: weakref.WeakSet[Exchange] = weakref.WeakSet()
_opened_here: weakref.WeakKeyDictionary[Block, str] = weakref.WeakKeyDictionary()


def _after_fork() -> None:
    for lock in tuple(_locks):
        lock.release()
    for exchange in tuple(_exchanges):
        exchange.disown()


os.register_at_fork(after_in_child=_after_fork)


def own_folder() -> Path:
    """Return a folder for files of this user's processes, which nobody else can read.

    Raises:
        OSError: Somebody else made it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"tenonnx-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not this user's alone")
    return folder


class Lock:
    """A lock on a file.

    A child has a copy of it, which is let go at once: it would outlast this process's.

    Args:
        descriptor: Of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _locks.add(self)

    def release(self) -> None:
        """Give it back."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def taken(path: Path, kind: int) -> Lock:
    """Return a lock.

    Raises:
        BlockingIOError: Another process has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(descriptor)


@contextmanager
def locked(path: Path, kind: int, wait: float) -> Iterator[None]:
    """Hold a lock.

    Raises:
        TimeoutError: Another process has had it for so many seconds.
    """
    end = time.monotonic() + wait
    while True:
        try:
            lock = taken(path, kind)
            break
        except BlockingIOError:
            if time.monotonic() >= end:
                raise TimeoutError(f"{path.name} was locked for {wait:g} s") from None
            time.sleep(TURN_SECONDS)
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether somebody has a lock of one's own on a file."""
    try:
        taken(path, fcntl.LOCK_SH).release()
    except BlockingIOError:
        return True
    return False
