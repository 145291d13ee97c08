"""The style of the server's pages, and the part of their policy that allows it and no other."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Final

STYLE: Final = files("tenonnx_serve").joinpath("page.css").read_text("utf-8")

_DIGEST: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

# The beginning of a page's `Content-Security-Policy`.
POLICY: Final = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; "
