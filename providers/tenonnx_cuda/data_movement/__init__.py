"""Concatenating and scattering: what moves elements."""
