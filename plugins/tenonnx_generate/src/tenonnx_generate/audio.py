"""``Audios``: sounds of files or of bytes, read piece by piece."""

from __future__ import annotations

import contextlib
import io
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from tenonnx.process import interruption
from tenonnx_generate.containers import Container, Decoded, opened
from tenonnx_generate.errors import Missing, Refused
from tenonnx_generate.resampling import resampled
from tenonnx_generate.several import Several

NDArray = np.ndarray[Any, np.dtype[Any]]

LEAST_RATE, MOST_RATE = 4_000, 192_000
MOST_SECONDS = 4 * 3600
MOST_CHANNELS = 2
MOST_CLIPS = 1024


class Clip:
    """One sound. Nothing of it stays in memory but what it was given as bytes.

    Args:
        source: A file's path, or its content.
        name: How errors call it.

    Attributes:
        rate: Its samples a second.
        frames: How many samples each channel has.

    Raises:
        Missing: There is no such file.
        Refused: It is no sound, has no samples, is cut off, too long, or has too many channels.
        NotInstalled: It is no WAV file of whole numbers, and ``soundfile`` is not there.
    """

    def __init__(self, source: Path | bytes, name: str) -> None:
        self.name, self._source = name, source
        self._decoded: Container | None = None
        with self._opened() as container:
            self.rate, self.channels = container.rate, container.channels
            self.frames = container.frames
            self._check()
            # A file that is cut off lacks its last sample.
            if self._decoded is None and not len(container.read(self.frames - 1, 1)):
                raise Refused(f"{name} is cut off: it has less than the {self.frames} samples")

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.frames / self.rate

    def samples(self, rate: int, first: int, count: int) -> NDArray:
        """Return at most so many samples, mono from -1 to 1, at any rate.

        Args:
            rate: Theirs.
            first: The first, of all that the sound has at this rate.
            count: How many at most: fewer at its end.
        """
        left = -(-self.frames * rate // self.rate) - first
        with self._opened() as container:
            read = self._reader(container)
            return resampled(read, self.rate, rate, first, max(min(count, left), 0))

    def _reader(self, container: Container) -> Callable[[int, int], NDArray]:
        def read(start: int, stop: int) -> NDArray:
            there = np.zeros(max(stop - start, 0), np.float32)
            low, high = max(start, 0), min(stop, self.frames)
            if low < high:
                frames = container.read(low, high - low)
                if len(frames) < high - low:
                    raise Refused(f"{self.name} is cut off after {low + len(frames)} samples")
                there[low - start : high - start] = frames.mean(axis=1)
            return there

        return read

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Container]:
        """Open the file; what was decoded of it stays open, to go on from there."""
        if self._decoded is not None:
            yield self._decoded
            return
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(self._file())
            container = opened(file, self.name)
            if isinstance(container, Decoded):
                self._decoded = container
                weakref.finalize(self, interruption.finish, stack.pop_all().close)
            yield container

    def _file(self) -> IO[bytes]:
        if isinstance(self._source, bytes):
            return io.BytesIO(self._source)
        try:
            return self._source.open("rb")
        except OSError as error:
            raise Missing(f"{self.name} cannot be opened: {error.strerror}") from error

    def _check(self) -> None:
        if not self.frames > 0:
            raise Refused(f"{self.name} has no samples")
        if not 1 <= self.channels <= MOST_CHANNELS:
            raise Refused(
                f"{self.name} has {self.channels} channels; expected one or two",
                hint="mix them down before",
            )
        if not LEAST_RATE <= self.rate <= MOST_RATE:
            raise Refused(
                f"{self.name} has {self.rate} samples a second; expected {LEAST_RATE} to "
                f"{MOST_RATE}"
            )
        if self.seconds > MOST_SECONDS:
            raise Refused(
                f"{self.name} is {self.seconds / 3600:.1f} hours long; at most "
                f"{MOST_SECONDS // 3600} are read",
                hint="cut it into several files",
            )


class Audios(Several[Clip]):
    """Sounds, in the order in which they were opened."""

    word, most = "sound", MOST_CLIPS

    @staticmethod
    def open(*paths: str | os.PathLike[str]) -> Audios:
        """Open files, of which nothing but the heads are read yet.

        Raises:
            TypeError: One is no path.
            Missing: One does not exist.
            Refused: One is no sound that can be read.
            NotInstalled: One is no WAV file, and ``soundfile`` is not there.
        """
        return Audios([Clip(path, str(path)) for path in Audios.files(paths)])

    @staticmethod
    def open_bytes(*contents: bytes) -> Audios:
        """Open the contents of files.

        Raises:
            TypeError: One is no ``bytes``.
            Refused: One is no sound that can be read.
            NotInstalled: One is no WAV file, and ``soundfile`` is not there.
        """
        named = enumerate(Audios.contents(contents))
        return Audios([Clip(content, f"sound {number}") for number, content in named])
