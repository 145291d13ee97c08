"""Attention, its caches of keys and values, and rotary embeddings."""
