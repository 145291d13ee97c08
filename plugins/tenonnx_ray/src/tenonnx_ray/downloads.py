"""A model at an HTTP address, as a file system with one file for :mod:`tenonnx_ray.fetching`."""

from __future__ import annotations

import contextlib
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from tenonnx import Fail, NoSuchFile

SCHEMES = ("http", "https")

# The longest silence of a server, in seconds.
MAX_SILENT_SECONDS = 60.0


def is_web(address: str) -> bool:
    """Return whether an address is an HTTP address."""
    return urlsplit(address).scheme in SCHEMES


@dataclass(frozen=True)
class Download:
    """The file; its attributes are those of pyarrow.

    Attributes:
        path: Its name.
        size: Its size in bytes.
        mtime_ns: The server's tag or time of its version, as text.
    """

    path: str
    size: int
    mtime_ns: str


class Site:
    """A reader of the file: the one method of pyarrow's file systems that is needed.

    Args:
        address: The file's address.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def open_input_stream(self, _: str) -> Any:
        """Open the file.

        Raises:
            NoSuchFile: It does not exist, or may not be read.
            Fail: The server does not answer.
        """
        shown = without_query(self._address)
        try:
            return urllib.request.urlopen(self._address, timeout=MAX_SILENT_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            raise NoSuchFile(f"{shown}: the server answers {error.code} {error.reason}") from None
        except (urllib.error.URLError, OSError) as error:
            why = getattr(error, "reason", error)
            raise Fail(f"{shown}: the server does not answer: {why}") from None

    def look(self) -> Download:
        """Return the file's description by the server.

        Raises:
            NoSuchFile, Fail: As above, or the server does not tell the file's size.
        """
        with contextlib.closing(self.open_input_stream("")) as answer:
            headers = answer.headers
        size = headers.get("Content-Length", "")
        if not size.isdigit():
            raise Fail(f"{without_query(self._address)}: the server does not tell the file's size")
        state = headers.get("ETag") or headers.get("Last-Modified") or ""
        return Download(unquote(urlsplit(self._address).path), int(size), state)


def without_query(address: str) -> str:
    """Return an address without its query, which may be a signature that differs each time."""
    return urlsplit(address)._replace(query="", fragment="").geturl()
