"""Why a plan is not kept."""

from __future__ import annotations


class Unkept(Exception):
    """A plan, or something in it, cannot be kept; the message says why."""
