"""Compiled plans on disk, so that later processes open a model without reading it."""

from __future__ import annotations


class NotCacheable(Exception):
    """A plan, or a part of it, cannot be cached or used here; the message says why."""
