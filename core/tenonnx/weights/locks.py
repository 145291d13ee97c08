"""Locks that survive a fork."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable
from contextlib import AbstractContextManager

from tenonnx.process.weak import WeakTable


class Locks:
    """A lock for tables, and a lock per key while it is in use.

    All of them are reentrant. A thread that held one when the process forked does not exist in
    the child to release it, so the child gets new ones.

    Attributes:
        table: The lock to hold while tables are read and changed, and never for long.
    """

    def __init__(self) -> None:
        self._renew()
        _all.add(self)

    def only_one(self, *key: Hashable) -> AbstractContextManager[object]:
        """Return the lock under which one thread at a time does what the key names."""
        with self.table:
            return self._keyed.setdefault(key, threading.RLock())

    def _renew(self) -> None:
        self.table = threading.RLock()
        self._keyed = WeakTable[Hashable, AbstractContextManager[object]]()


_all: weakref.WeakSet[Locks] = weakref.WeakSet()


def _after_fork() -> None:
    for locks in _all:
        locks._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
