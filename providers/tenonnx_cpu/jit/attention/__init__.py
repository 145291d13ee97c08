"""Attention, its caches, and rotary positions."""
