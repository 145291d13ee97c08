"""Compiled plans on disk, so that later processes open a model without reading it."""
