"""Kernels that move elements.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

# Axes at most, beside the two that squares are transposed along.
AXES = 4

# The names of the kernel's first numbers, in elements:
#
# A line of the result has `columns`, `apart` in the source, where `lines` of them are `line_apart`:
# side by side, if columns are not. In the result they are `target_line` apart. Where an axis is
# shorter than a vector, it is `joined` with another: after a `run` of columns the next begins
# `run_apart` from where that began, and after a `block` of lines `target_block`. If none is, both
# are all. There may be so `few` columns, or lines, that adjacent ones are moved as vectors. A unit
# is one of `bands` of `band` lines; `grain` of `units` are one of `tasks`. An element has `size`
# bytes. Then come lengths of the outer axes, strides in the source, and strides in the result.
TRANSPOSE_FIELDS = (
    "columns", "apart", "run", "run_apart", "lines", "line_apart", "target_line", "block",
    "target_block", "joined", "few", "band", "bands", "units", "grain", "tasks", "size",
)  # fmt: skip

# Columns of lines that follow each other, or lines of adjacent elements, that are few.
FEW_LINES = (2, 3, 4)

# The kinds of few: columns that are joined in the result, or lines that are in the source.
JOINED_COLUMNS, PARTED_LINES = 1, 2

# Lines of a unit at least: a line of the source's cache lines, if they begin anywhere in one, is
# read by few units.
TOGETHER = 32

# Bytes of a unit at least: it takes some divisions to find where one begins.
UNIT_BYTES = 1 << 13

# The names of a copy's numbers. A run has `run` adjacent bytes, in `parts` of `part`. There are
# `count` of them, `source_step` bytes apart in the source and `target_step` in the result, in
# `cuts` of `piece`, along each step of `rank` outer axes. There are `units` of one part of one cut,
# of which `grain` are one of `tasks`. Then come each outer axis' length, and the bytes along it in
# the source and in the result, the last axis first.
COPY_FIELDS = (
    "rank", "run", "part", "parts", "count", "source_step", "target_step", "piece", "cuts", "units",
    "grain", "tasks",
)  # fmt: skip

# The ways elements go: out of an array, or into one, where they may meet others.
GATHERED, WRITTEN, ADDED, MULTIPLIED, GREATEST, LEAST = range(6)

# The names of the numbers of elements picked or written along an axis of an array, the data:
#
# A row has `width` places, of 8 bytes if they are `wide`, else 4, each of one of `depth` along the
# axis, which are `axis_step` bytes apart; elements beside each other in a row are `data_step`
# apart, their places `place_step` and the other array's elements `other_step`. There are `rows`
# along `rank` axes: then come each axis' length and the bytes along it in the data, the places and
# the other array, the last axis first. A unit is a piece of a row, or if `whole` is 0 a piece of
# all rows. An element has `size` bytes; `element` is its type as of `elementwise.operations`.
INDEXED_FIELDS = (
    "way", "element", "size", "wide", "width", "depth", "axis_step", "data_step", "place_step",
    "other_step", "rank", "rows", "piece", "pieces", "units", "grain", "tasks", "whole",
)  # fmt: skip

# The names of the numbers of slices picked or written: each place is `depth` numbers, of 8 bytes if
# they are `wide`, else 4, and each slice `width` elements. After every `batch` of places the data
# of the next ones begins `batch_step` bytes on; those places are the same ones if it `repeats`
# them. Then come each axis' length and bytes.
SLICED_FIELDS = (
    "way", "element", "size", "wide", "depth", "width", "batch", "batch_step", "repeats",
    "units", "grain", "tasks",
)  # fmt: skip
