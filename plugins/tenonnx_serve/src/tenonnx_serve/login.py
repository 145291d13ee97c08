"""The page in a browser of a server with a token: a form that takes it, and a cookie that shows it.

The cookie has no token, but a code made of it. It admits the browser to the page and to metrics
alone: requests to models need the token itself.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from tenonnx_serve.style import POLICY, STYLE

COOKIE: Final = "tenonnx_page"
PATH: Final = "/login"

# Paths that the cookie admits to.
PAGES: Final = frozenset({"/", "/metrics"})

MAX_FORM_BYTES: Final = 4096

FORM: Final = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>tenonnx serve</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>
<body><header><h1>tenonnx serve</h1><p class="dim">The page and the metrics of this server need its
token.</p></header><form method="post" action="/login"><label>Token <input type="password"
name="token" autocomplete="current-password" required autofocus></label>
<button>Show the page</button></form></body></html>
""".encode()

HEADERS: Final = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        f"{POLICY}form-action 'self'; frame-ancestors 'none'".encode(),
    ),
]


def code_of(token: bytes) -> str:
    """Return the cookie's value: whoever has it does not know the token."""
    return hmac.new(token, COOKIE.encode(), hashlib.sha256).hexdigest()


def admits(token: bytes, path: str, cookie: bytes | None) -> bool:
    """Return whether a browser with such a cookie may see a path."""
    if path not in PAGES or not cookie:
        return False
    try:
        found = SimpleCookie(cookie.decode("latin-1")).get(COOKIE)
    except CookieError:
        return False
    given = "" if found is None else found.value
    return hmac.compare_digest(given.encode(), code_of(token).encode())


def header_of(token: bytes, *, secure: bool) -> bytes:
    """Return the header ``Set-Cookie``; over TLS, browsers send the cookie over TLS alone."""
    more = "; Secure" if secure else ""
    return f"{COOKIE}={code_of(token)}; HttpOnly; SameSite=Strict; Path=/{more}".encode()


def token_in(form: bytes | bytearray) -> bytes:
    """Return the token in the form's body."""
    return parse_qs(form.decode("latin-1")).get("token", [""])[0].encode()
