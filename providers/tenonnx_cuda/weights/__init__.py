"""Weights on a device: every byte once, copied there at the speed of its bus."""
