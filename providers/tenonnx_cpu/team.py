"""How many threads the session being compiled may use, for what is made far from its provider."""

from __future__ import annotations

from contextvars import ContextVar

TEAM: ContextVar[int] = ContextVar("tenonnx_team", default=1)
