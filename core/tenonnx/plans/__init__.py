"""Compiled plans on disk, so that later processes open a model without reading it."""

from __future__ import annotations


class Unkept(Exception):
    """A plan, or something in it, cannot be kept; the message says why."""
