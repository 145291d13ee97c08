"""Files of sound: WAV by the standard library, others by ``soundfile``."""

from __future__ import annotations

import importlib
import os
import wave
from typing import IO, Any, Protocol

import numpy as np

from tenonnx_generate.errors import NotInstalled, Refused

NDArray = np.ndarray[Any, np.dtype[Any]]

MOST_CHUNKS = 256
MOST_WIDTH = 4

# Frames that are decoded at once where they are skipped.
BLOCK_FRAMES = 1 << 16


class Container(Protocol):
    """A file of sound.

    Attributes:
        rate: Its samples a second.
        channels: How many it has.
        frames: How many samples each has.
    """

    rate: int
    channels: int
    frames: int

    def read(self, first: int, count: int) -> NDArray:
        """Return samples [count, channels] from -1 to 1; fewer where the file ends."""


def opened(file: IO[bytes], name: str) -> Container:
    """Return a file's container.

    Raises:
        Refused: It is no sound that can be read.
        NotInstalled: It is no WAV file of whole numbers, and ``soundfile`` is not there.
    """
    return Wave(file) if _is_wave(file, name) else Decoded(file, name)


class Wave:
    """A WAV file with whole numbers."""

    def __init__(self, file: IO[bytes]) -> None:
        file.seek(0)
        self._reader = wave.open(file, "rb")  # noqa: SIM115  # as long as the file is
        self.rate, self.channels = self._reader.getframerate(), self._reader.getnchannels()
        self.frames, self._width = self._reader.getnframes(), self._reader.getsampwidth()

    def read(self, first: int, count: int) -> NDArray:
        """Return samples [count, channels] from -1 to 1; fewer where the file ends."""
        self._reader.setpos(first)
        content = self._reader.readframes(count)
        size = self._width * self.channels
        return _floats(content[: len(content) // size * size], self._width, self.channels)


class Decoded:
    """A file of another container. It is decoded from its beginning on: seeks in MP3 miss."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._library, self._name, self._file = _library(name), name, file
        self._begin()
        self.rate, self.channels = self._reader.samplerate, self._reader.channels
        self.frames: int = self._reader.frames
        self._last = np.zeros((0, self.channels), np.float32)
        """Frames up to the place where the decoder is."""

    def read(self, first: int, count: int) -> NDArray:
        """Return samples [count, channels] from -1 to 1; fewer where the file ends.

        A part that follows the one before, or overlaps its end, goes on from there.
        """
        kept = self._at - first
        if not 0 <= kept <= len(self._last):
            if kept > 0:
                self._begin()
            while self._at < first and len(self._decode(min(first - self._at, BLOCK_FRAMES))):
                pass
            kept = 0
        there = self._last[len(self._last) - kept :]
        if len(there) < count:
            there = self._last = np.concatenate([there, self._decode(count - len(there))])
        return there[:count]

    def _begin(self) -> None:
        self._file.seek(0)
        try:
            self._reader = self._library.SoundFile(self._file)
        except (self._library.SoundFileError, RuntimeError) as error:
            raise Refused(f"{self._name} is no sound that can be read: {error}") from error
        self._at = 0

    def _decode(self, count: int) -> NDArray:
        try:
            frames: NDArray = self._reader.read(count, dtype="float32", always_2d=True)
        except (self._library.SoundFileError, RuntimeError) as error:
            raise Refused(f"{self._name} cannot be read further: {error}") from error
        self._at += len(frames)
        return frames


def _library(name: str) -> Any:
    try:
        return importlib.import_module("soundfile")
    except (ModuleNotFoundError, OSError) as error:  # the C library may not be there
        raise NotInstalled(
            f"{name} is no WAV file of whole numbers, which is all that is read without soundfile",
            hint="pip install soundfile, or ffmpeg -i FILE -c:a pcm_s16le FILE.wav",
        ) from error


def _is_wave(file: IO[bytes], name: str) -> bool:
    """Return whether the standard library reads a file: WAV with whole numbers."""
    file.seek(0)
    if file.read(4) != b"RIFF" or file.read(8)[4:] != b"WAVE":
        return False
    for _ in range(MOST_CHUNKS):
        head = file.read(8)
        if len(head) < 8 or head[:4] == b"data":
            break
        size = int.from_bytes(head[4:], "little")
        file.seek(size + size % 2, os.SEEK_CUR)
    else:
        raise Refused(f"{name} has more than {MOST_CHUNKS} chunks before its samples")
    file.seek(0)
    try:
        with wave.open(file, "rb") as reader:
            return reader.getsampwidth() <= MOST_WIDTH
    except (wave.Error, EOFError, RuntimeError):
        return False


def _floats(content: bytes, width: int, channels: int) -> NDArray:
    """Return samples of 8 bits, from 0 on, or 16, 24 or 32, around 0, as -1 to 1."""
    if width == 1:
        numbers = np.frombuffer(content, np.uint8).astype(np.float32) - 128
    elif width == 3:
        wide = np.zeros((len(content) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        numbers, width = wide.view("<i4")[:, 0].astype(np.float32), 4
    else:
        numbers = np.frombuffer(content, f"<i{width}").astype(np.float32)
    return numbers.reshape(-1, channels) / np.float32(1 << (8 * width - 1))
