"""Attention in tiles of scores, and rotary positions."""
