"""The first runs of a fresh process, after a new installation."""
