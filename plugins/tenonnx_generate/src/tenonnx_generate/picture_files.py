"""``Images``: pictures of files or of bytes, decoded one by one."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from tenonnx_generate.errors import Missing, NotInstalled, Refused
from tenonnx_generate.several import Several

NDArray = np.ndarray[Any, np.dtype[Any]]

# Formats that Pillow decodes by itself, without a program of the system's.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")

# Of one prompt: each image takes hundreds of its tokens.
MOST_IMAGES = 64

# Of one image; 100 MiB when it is decoded. Models take at most 13 million of them.
MOST_PIXELS = 1 << 25


class Picture:
    """One image, of which nothing but the head is read yet.

    Args:
        source: A file's path, or its content.
        name: How errors call it.

    Raises:
        Refused: It is no image of a known format, or too large.
        NotInstalled: Pillow is not there.
    """

    def __init__(self, source: Path | bytes, name: str) -> None:
        self.name, self._source = name, source
        with self._opened() as image:
            width, height = image.size
        if width * height > MOST_PIXELS:
            raise Refused(
                f"{name} has {width} x {height} pixels; at most {MOST_PIXELS} are read",
                hint="make it smaller: models take fewer pixels",
            )

    def pixels(self) -> NDArray:
        """Return its colors as bytes, [height, width, 3], turned as its camera says.

        Raises:
            Refused: It is cut off or damaged.
        """
        operations = importlib.import_module("PIL.ImageOps")
        with self._opened() as image:
            turned = operations.exif_transpose(image)
            return np.array(turned.convert("RGB"))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        pillow = _pillow()
        try:
            with self._file() as file, pillow.open(file, formats=FORMATS) as image:
                yield image
        except (Refused, Missing):
            raise
        except pillow.UnidentifiedImageError:
            raise Refused(f"{self.name} is no image of {', '.join(FORMATS)}") from None
        except Exception as error:  # Pillow raises a dozen kinds for damaged files
            raise Refused(f"{self.name} cannot be decoded: {error}") from error

    def _file(self) -> IO[bytes]:
        if isinstance(self._source, bytes):
            return io.BytesIO(self._source)
        try:
            return self._source.open("rb")
        except OSError as error:
            raise Missing(f"{self.name} cannot be opened: {error.strerror}") from error


class Images(Several[Picture]):
    """Pictures, in the order in which they were opened."""

    word, most = "image", MOST_IMAGES

    @staticmethod
    def open(*paths: str | os.PathLike[str]) -> Images:
        """Open files, of which nothing but the heads are read yet.

        Raises:
            TypeError: One is no path.
            Missing: One does not exist.
            Refused: One is no image that can be read.
            NotInstalled: Pillow is not there.
        """
        return Images([Picture(path, str(path)) for path in Images.files(paths)])

    @staticmethod
    def open_bytes(*contents: bytes) -> Images:
        """Open the contents of files, as ``open`` does files.

        Raises:
            TypeError: One is no ``bytes``.
        """
        named = enumerate(Images.contents(contents), 1)
        return Images([Picture(content, f"image {number}") for number, content in named])


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise NotInstalled(
            "images are decoded by Pillow, which is not installed",
            hint="pip install tenonnx-generate[images]",
        ) from error
