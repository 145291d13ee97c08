"""boxes at versions and attributes that the backend suite leaves out."""

from __future__ import annotations

from case import Case

CASES: list[Case] = []
