"""The registry: every weight exists once, as a view of bytes that lie somewhere else."""
