"""Kernels of images in float32: convolutions, pooling, resizing.

What they and their callers agree on is here, which is imported without numba.
"""

from __future__ import annotations

# A row of the product is a multiple of it; at least as many as a tile has columns.
VECTOR = 32

# Columns of a task at most, so that what it packs stays in the second-level cache.
COLUMNS_PER_TASK = 448

# Rows of the highest tile; tasks of fewer leave it partly empty.
TILE_ROWS = 14

# Channels of a task at most.
ROWS_PER_TASK = 256

# Tasks for each of several threads, so that none of them waits long for the last one.
TASKS_PER_THREAD = 4

# Channels that are summed over at a time in an image of one element: rows are read once.
MAX_SUMMED_CHANNELS = 4096

# Floats of planes at most, so that they stay in the second-level cache.
MAX_PLANE_FLOATS = 48 << 10

# Floats of a line of the cache: two vectors that begin with one are in few of them.
CACHE_LINE_FLOATS = 16

# Floats after which addresses come to the same set of the first-level cache again.
SAME_SET_FLOATS = 1024

# The alignment of a plane's line: the floats of a vector.
LINE_ALIGNMENT_FLOATS = 16

# Products of a task at most, some milliseconds: runs are stopped between two.
MAX_TASK_PRODUCTS = 1 << 24

# The most channels that a vector has.
MAX_VECTOR_CHANNELS = 16

# Rows up to which a panel of B is not worth a copy, and results had better be written in lines.
FEW = 64

# Taps of a kernel's line that have code of their own, where they see adjacent columns.
RUN = 3

# Square kernels, and strides along a line, that have code of their own.
UNROLLED_WINDOWS = ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1), (2, 2))

# The names of `Layout.numbers`, in elements:
#
# `rows` and `channels` are a group's; `plane` elements are a plane, and `line` a row of it, of
# which a window ends `reach` below the one it begins in; a task makes `task_rows` channels of
# `task_height` rows of `task_width` elements, of which `together` follow one another as a window
# sees them, summing over `block` input channels at a time, in `work` floats of memory: the product,
# whose rows are `pitch` apart, planes, from `copy` on rows of A, from `edge` on columns of B and
# from `panel` on a panel of it.
#
# Every image of the result is one of `out_depth` of a volume, and convolves images of `depth` of
# them, `taps_z` of each of the volume's channels, as channels of its own. Where taps are `runs` of
# `RUN`, images that lie outside of the volume are left out, and a block has all of a channel's.
CONV_FIELDS = (
    "tasks", "work", "batch", "groups", "rows", "channels", "height", "width", "out_height",
    "out_width", "stride_y", "stride_x", "top", "taps", "direct", "plane", "line", "reach",
    "task_rows", "task_height", "task_width", "block", "pitch", "copy", "edge",
    "panel", "together", "depth", "out_depth", "taps_z", "stride_z", "step_z", "front", "runs",
)  # fmt: skip

# The same for `depthwise_layout` and pooling:
#
# `multiple` results come from a channel; a task works on `task_channels` channels of one of `bands`
# of the result, `task_height` rows at a time; `plane` elements are a phase of a channel, and `line`
# a row of it, of which a window ends `reach` below the one it begins in; `work` is the memory
# needed; `variant` is a number of `UNROLLED_WINDOWS`, from 1 on, and `unrolled` one for windows
# that may have another stride from line to line; `left` is where the first window begins.
DEPTHWISE_FIELDS = (
    "tasks", "work", "batch", "channels", "multiple", "task_channels", "height", "width",
    "out_height", "out_width", "stride_y", "stride_x", "top", "left", "taps", "bands", "plane",
    "line", "reach", "task_height", "variant", "unrolled",
)  # fmt: skip

# The same for `channels_layout`: a task makes `task_channels` channels of `task_height` lines of
# the result, `together` lines of a few channels at a time. Images have their channels first or
# last, and so has the result. The `work` floats of a thread are vectors of a place each: of the
# image, if its channels are first, and from `sums` on of results, if theirs are.
CHANNELS_FIELDS = (
    "tasks", "work", "batch", "channels", "height", "width", "out_width", "out_height", "top",
    "left", "stride", "kernel", "task_channels", "task_height", "variant", "from_last", "to_last",
    "sums", "together",
)  # fmt: skip

# The same for `expanded_layout`: a task makes `task_channels` channels of `task_height` lines of
# the result, `together` lines of a panel of channels at a time. What a place of the image between
# is made of are `depth` numbers, which begin `pixel` elements after those of the place before. The
# `work` floats of a thread are lines of it, all channels of a panel for each place: `kept` of each
# panel for the next band, and from `band` on what windows see.
EXPANDED_FIELDS = (
    "depth", "channels", "height", "width", "pixel", "out_height", "out_width", "top", "left",
    "stride", "kernel", "variant", "task_channels", "task_height", "together", "kept", "band",
    "work", "tasks",
)  # fmt: skip

# The names of `Layout.numbers`, in elements:
#
# An image is `planes` of `height` lines of `line` elements, one if its channels are last. If it is
# to be `copied`, lines become `padded`, and a plane `plane` elements; `top` lines and `left`
# elements are ahead of it, and windows see `taps_y` lines. What a place sees begins `pixel`
# elements after what the one before does. A result has its channels `last` or not. A task makes
# `task_rows` channels of `task_height` lines of `task_width` places, in `work` floats of memory,
# which from `sums` on are a line's sums.
PIXELS_FIELDS = (
    "tasks", "work", "rows", "planes", "height", "line", "out_height", "out_width", "stride_y",
    "pixel", "top", "left", "padded", "taps_y", "plane", "copied", "depth", "last", "task_rows",
    "task_height", "task_width", "sums",
)  # fmt: skip

# The names of `Layout.numbers` for products in tiles of bfloat16; sizes are in bytes:
#
# First all images are copied as bfloat16, padded by `top` lines and `left` places, with their
# channels last: `lines` of `columns` places each, of `pixel`, `line` and `image` bytes, in
# `rounding` tasks of `piece` places, `pieces` for a line. Images come with their channels last
# (`from_last`) or not, and so does the result (`last`). Windows are `step` apart, and `stride_y`
# lines; each sees `words` pairs of `taps_y` lines, `apart_y` lines apart, `deep` of them side by
# side at a time. A task makes `task_rows` channels of `task_height` lines of `task_width` places.
# Memory has `copy` floats for the images, then `work` for every thread.
TILES_FIELDS = (
    "rows", "channels", "height", "width", "out_height", "out_width", "stride_y", "top", "left",
    "from_last", "last", "lines", "columns", "pixel", "line", "image", "piece", "pieces",
    "rounding", "step", "deep", "words", "taps_y", "apart_y", "task_rows", "task_height",
    "task_width", "copy", "work", "tasks",
)  # fmt: skip

# Places whose sums are finished at a time: those of a panel of channels fit a third of the
# first-level cache.
TILE_PLACES = 128

# The same for pooled volumes, of which a task makes `task_depth` slices: it works in `work` floats,
# first those that pooling a slice takes, then `slots` of `pitch` each, where pooled slices are kept
# as long as windows see them, and from `places` on an integer per tap.
SLICE_FIELDS = (
    "depth", "out_depth", "taps_z", "stride_z", "step_z", "front", "slots", "pitch", "places",
    "work", "task_depth", "tasks",
)  # fmt: skip

# The names of `interleave_f32`'s numbers: phases, how far into the first slices, lines and columns
# of them all the result begins, the size of a phase and of the result, lines of a task and tasks.
PHASE_FIELDS = (
    "stride_z", "stride_y", "stride_x", "front", "top", "left", "depth", "height", "width",
    "out_depth", "out_height", "out_width", "task_height", "tasks",
)  # fmt: skip

# The names of `Layout.numbers`, in elements:
#
# `size` is a tile's, of which an image has `tiles_y` x `tiles_x` and a block at most `block_y` x
# `block_x`; there are `blocks` in all, `blocks_y` x ... in an image. A task makes a panel of
# channels of a block, of `panels`. A thread works in `work` elements. After `HEAD` come tiles,
# `apart` for each place of a tile, `pitch` for each channel of it, of which `depth` are summed at a
# time; from `products` on products, `product` for each place of a tile; and from `lines` on
# results, `line` for each of their lines.
WINOGRAD_FIELDS = (
    "tasks", "work", "batch", "channels", "rows", "height", "width", "out_height", "out_width",
    "top", "left", "size", "tiles_y", "tiles_x", "block_y", "block_x", "blocks_y", "blocks",
    "pitch", "apart", "panels", "products", "product", "lines", "line", "depth",
)  # fmt: skip

# The names of a resizing's numbers: how many axes change; whether elements of the type `source`, of
# `size` bytes, become floats first and of the type `target` in the end; whether sums are `wide`, of
# float64; how many elements are `given`, and `results`; whether these are `whole` numbers from
# `low` to `high`, `rounded` or truncated. Types are those of `elementwise.operations`.
TAPS_FIELDS = (
    "passes", "widens", "wide", "source", "size", "target", "given", "results", "whole", "rounded",
    "low", "high",
)  # fmt: skip

# The names of the numbers of a pass: how long its axis is, how many elements are side by side at
# one place of it, and how long it becomes; how many elements make each result, and where the first
# of their places is; where in memory the results are, or -1 for the last ones; `grain` of `lines`
# are one of `tasks`.
TAPS_PASS = (
    "length", "inner", "resized", "taps", "first", "target", "lines", "grain", "tasks",
)  # fmt: skip

# The names of a grid's numbers: images, channels of each, and points that are sampled in each, in
# `blocks`; axes of an image and their lengths, `depth` being 1 if there are two, and elements of a
# channel; elements that are read along an axis and in all; whether corners are those of the first
# and last elements; and whether the border's elements count outside, or 0 does.
GRID_FIELDS = (
    "images", "channels", "points", "blocks", "rank", "depth", "height", "width", "elements",
    "taps", "reads", "aligned", "border",
)  # fmt: skip

# Points that are sampled at a time.
GRID_POINTS = 256

# Elements at most that are read at a point.
MAX_GRID_TAPS = 16

# The names of the numbers of a deformable convolution: groups of channels of all images, and
# channels of each; taps of a window, in all and along a line; lines and columns of an image;
# windows, in all and along a line; their distances, those of taps, and the padding before; and
# whether samples are multiplied by a mask.
DEFORM_FIELDS = (
    "groups", "channels", "taps", "taps_x", "height", "width", "points", "columns", "stride_y",
    "stride_x", "dilation_y", "dilation_x", "pad_y", "pad_x", "masked",
)  # fmt: skip

# Points that are sampled at a time.
DEFORMED_POINTS = 256

# The names of the numbers of regions: of the images, of a region's bins, of the samples of a bin
# along an axis, or 0 for as many as it has elements, whether elements' middles have whole numbers
# and a half, and of floats of each worker's memory: the weights of each element in each bin along
# both axes, a line, and where each bin begins and ends.
REGION_FIELDS = (
    "images", "channels", "height", "width", "rows", "columns", "ratio", "aligned", "share",
)  # fmt: skip

# Samples of a bin along an axis at most.
MAX_REGION_SAMPLES = 1 << 12

# The names of the numbers of windows of elements of any type, over volumes; images and lines are
# volumes of one slice, or of one row. Of each axis: its length, how many windows it has, their
# taps, their distance, that of taps, and the padding before. A task makes `grain` lines of `lines`;
# elements have `itemsize` bytes, and are floats or whole numbers.
TYPED_WINDOWS_FIELDS = (
    "depth", "height", "width", "out_depth", "out_height", "out_width", "taps_z", "taps_y",
    "taps_x", "stride_z", "stride_y", "stride_x", "dilation_z", "dilation_y", "dilation_x",
    "begin_z", "begin_y", "begin_x", "itemsize", "floats", "lines", "grain", "tasks",
)  # fmt: skip
