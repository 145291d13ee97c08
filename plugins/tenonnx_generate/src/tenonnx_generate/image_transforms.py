"""The pixels of an image as a model takes them: the operations of ``processor_config.json``."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.files import CONFIG_LIMIT, parse_object, read_text

NDArray = np.ndarray[Any, np.dtype[Any]]

# Patches in time, height and width.
Grid = tuple[int, int, int]

# Of an image or a patch: the sizes that a configuration may name.
MOST_SIDE, MOST_PATCH, MOST_PIXELS = 1 << 13, 128, 1 << 25

# Sides that differ by more are refused, as transformers' processor does.
MOST_ASPECT = 200

# The numbers of CLIP's training images, by which most models normalize colors.
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class Resize:
    """Bring an image to a size by Pillow's resampling.

    With ``smart``, sides become the closest multiples of ``factor`` that keep the image's shape and
    have between ``least`` and ``most`` pixels, as Qwen's models take them.
    """

    method: str
    height: int
    width: int
    smart: bool
    factor: int
    least: int
    most: int

    def __call__(self, pixels: NDArray) -> NDArray:
        """Return the image in its new size."""
        if pixels.dtype != np.uint8:
            raise Refused("Resize is of bytes: it comes before Rescale")
        pillow = importlib.import_module("PIL.Image")
        height, width = self.fitted(*pixels.shape[:2]) if self.smart else (self.height, self.width)
        image = pillow.fromarray(np.ascontiguousarray(pixels))
        return np.array(image.resize((width, height), pillow.Resampling[self.method]))

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """Return the sides of an image of these sides."""
        if max(height, width) > MOST_ASPECT * min(height, width):
            raise Refused(
                f"an image of {width} x {height} pixels is too narrow: one side may be "
                f"{MOST_ASPECT} times the other"
            )

        def scaled(side: int, scale: float, rounding: Callable[[float], int]) -> int:
            return max(rounding(int(side * scale) / self.factor) * self.factor, self.factor)

        found = [max(round(side / self.factor), 1) * self.factor for side in (height, width)]
        if math.prod(found) > self.most:
            scale = math.sqrt(self.most / (height * width))
            found = [scaled(side, scale, math.floor) for side in (height, width)]
        elif math.prod(found) < self.least:
            scale = math.sqrt(self.least / (height * width))
            found = [scaled(side, scale, math.ceil) for side in (height, width)]
        return found[0], found[1]


@dataclass(frozen=True)
class CenterCrop:
    """Cut the middle of an image out."""

    height: int
    width: int

    def __call__(self, pixels: NDArray) -> NDArray:
        """Return the middle."""
        height, width = pixels.shape[:2]
        if height < self.height or width < self.width:
            raise Refused(f"an image of {width} x {height} pixels is smaller than the part of it")
        top, left = (height - self.height) // 2, (width - self.width) // 2
        return pixels[top : top + self.height, left : left + self.width]


@dataclass(frozen=True)
class Rescale:
    """Multiply colors by a number."""

    factor: float

    def __call__(self, pixels: NDArray) -> NDArray:
        """Return the products, as float32."""
        return pixels.astype(np.float32) * np.float32(self.factor)


@dataclass(frozen=True)
class Normalize:
    """Subtract a mean of each color, and divide by a deviation; ``swapped`` swaps red and blue."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    swapped: bool

    def __call__(self, pixels: NDArray) -> NDArray:
        """Return the normalized colors."""
        given = pixels[..., ::-1] if self.swapped else pixels
        mean, deviation = (np.array(each, np.float32) for each in (self.mean, self.deviation))
        return (given - mean) / deviation


@dataclass(frozen=True)
class SwapColors:
    """Swap red and blue."""

    def __call__(self, pixels: NDArray) -> NDArray:
        """Return the image with blue first, or red again."""
        return pixels[..., ::-1]


@dataclass(frozen=True)
class Transpose:
    """Order the axes of height, width and colors."""

    axes: tuple[int, ...]

    def __call__(self, pixels: NDArray) -> NDArray:
        """Return the axes in the other order."""
        return pixels.transpose(self.axes)


@dataclass(frozen=True)
class Patches:
    """Cut an image into patches, [patches, colors * frames * size * size].

    Patches that are merged to one token, ``merged`` by ``merged`` of them, follow each other. An
    image is a film whose ``frames`` are all alike.
    """

    size: int
    frames: int
    merged: int

    def grid(self, pixels: NDArray) -> Grid:
        """Return the number of patches in time, height and width."""
        height, width = pixels.shape[:2]
        if height % (self.size * self.merged) or width % (self.size * self.merged):
            raise Refused(
                f"an image of {width} x {height} pixels is no whole number of patches of "
                f"{self.size} pixels, {self.merged} by {self.merged} together"
            )
        return 1, height // self.size, width // self.size

    def __call__(self, pixels: NDArray) -> NDArray:
        """Return the patches of an image."""
        _, rows, columns = self.grid(pixels)
        split = pixels.reshape(
            rows // self.merged, self.merged, self.size,
            columns // self.merged, self.merged, self.size, -1,
        )  # fmt: skip
        ordered = split.transpose(0, 3, 1, 4, 6, 2, 5)[..., None, :, :]
        films = np.repeat(ordered, self.frames, axis=-3)
        return films.reshape(rows * columns, -1)


Operation = Callable[[NDArray], NDArray]


@dataclass(frozen=True)
class Processing:
    """The operations from an image's bytes to a model's input, one after the other."""

    operations: tuple[Operation, ...]

    def __call__(self, pixels: NDArray) -> tuple[NDArray, Grid | None]:
        """Return what becomes of an image, and the grid of its patches, if it is cut into some."""
        grid = None
        for operation in self.operations:
            if isinstance(operation, Patches):
                grid = operation.grid(pixels)
            pixels = operation(pixels)
        return np.ascontiguousarray(pixels, np.float32), grid


def read_processing(path: str) -> Processing:
    """Return what a ``processor_config.json`` says.

    Raises:
        Refused: It has no operations, or one has an attribute that cannot be.
        Unsupported: It has an operation that does not run here.
    """
    document = parse_object(read_text(path, CONFIG_LIMIT), path)
    processor = document.get("processor")
    listed = processor.get("transforms") if isinstance(processor, dict) else None
    if not isinstance(listed, list) or not listed:
        raise Refused(f"{path} has no transforms of a processor")
    made = []
    for each in listed:
        operation = each.get("operation") if isinstance(each, dict) else None
        kind = operation.get("type") if isinstance(operation, dict) else None
        if kind not in OPERATIONS:
            raise Unsupported(
                f"{path} has the operation {kind!r:.60}, which does not run here",
                hint=f"there are {', '.join(OPERATIONS)}",
            )
        attributes = Attributes(kind, (operation or {}).get("attrs") or {}, path)
        made.append(OPERATIONS[kind](attributes))
    return Processing(tuple(each for each in made if each is not None))


class Attributes:
    """The attributes of an operation, checked as they are read."""

    def __init__(self, operation: str, given: Any, path: str) -> None:
        self._what = f"{operation} in {path}"
        self._given: Mapping[str, Any] = given if isinstance(given, dict) else {}

    def whole(self, name: str, low: int, high: int, default: int) -> int:
        """Return a whole number of a range."""
        found = self._given.get(name, default)
        if not isinstance(found, int) or not low <= found <= high:
            raise Refused(f"{name} of {self._what} is {found!r:.60}; expected {low} to {high}")
        return int(found)

    def text(self, name: str, known: tuple[str, ...], default: str) -> str:
        """Return a word of some."""
        found = self._given.get(name, default)
        if found not in known:
            raise Refused(f"{name} of {self._what} is {found!r:.60}; expected {', '.join(known)}")
        return str(found)

    def numbers(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """Return finite numbers, as many as by default."""
        found = self._given.get(name, default)
        listed = found if isinstance(found, list | tuple) else [found]
        whole = len(listed) == len(default) and all(
            isinstance(each, int | float) and math.isfinite(each) for each in listed
        )
        if not whole:
            raise Refused(f"{name} of {self._what} is {found!r:.60}; expected {len(default)}")
        return tuple(map(float, listed))


def _decoded(given: Attributes) -> Operation | None:
    order = given.text("color_space", ("RGB", "BGR"), "RGB")
    return SwapColors() if order == "BGR" else None


def _resized(given: Attributes) -> Operation:
    smart = bool(given.whole("smart_resize", 0, 1, 0))
    if not smart and given.whole("keep_aspect_ratio", 0, 1, 1):
        raise Unsupported(
            "Resize keeps the shape of images only with smart_resize",
            hint='"keep_aspect_ratio": 0 brings all to one size',
        )
    method = given.text("interpolation", tuple(RESAMPLINGS), "CUBIC")
    factor = given.whole("patch_size", 1, MOST_PATCH, 14) * given.whole("merge_size", 1, 16, 2)
    least = given.whole("min_pixels", 1, MOST_PIXELS, 4 * 28 * 28)
    return Resize(
        RESAMPLINGS[method],
        given.whole("height", 1, MOST_SIDE, 256),
        given.whole("width", 1, MOST_SIDE, 256),
        smart,
        factor,
        least,
        given.whole("max_pixels", least, MOST_PIXELS, 16384 * 28 * 28),
    )


def _normalized(given: Attributes) -> Operation:
    deviation = given.numbers("std", DEVIATION)
    if 0 in deviation:
        raise Refused("std of Normalize has a zero")
    swapped = any(given.whole(name, 0, 1, 0) for name in ("qwen2_5_vl", "qwen3_vl"))
    return Normalize(given.numbers("mean", MEAN), deviation, swapped)


def _transposed(given: Attributes) -> Operation:
    axes = tuple(int(axis) for axis in given.numbers("dims", (2, 0, 1)))
    if sorted(axes) != [0, 1, 2]:
        raise Refused(f"dims of Permute3D are {axes}; expected each of 0, 1 and 2")
    return Transpose(axes)


# Names of interpolations here, and Pillow's.
RESAMPLINGS = {"CUBIC": "BICUBIC", "LANCZOS": "LANCZOS", "LINEAR": "BILINEAR", "NEAREST": "NEAREST"}

OPERATIONS: dict[str, Callable[[Attributes], Operation | None]] = {
    "DecodeImage": _decoded,
    "ConvertRGB": lambda _: SwapColors(),
    "Resize": _resized,
    "CenterCrop": lambda given: CenterCrop(
        given.whole("height", 1, MOST_SIDE, 224), given.whole("width", 1, MOST_SIDE, 224)
    ),
    "Rescale": lambda given: Rescale(*given.numbers("rescale_factor", (1 / 255,))),
    "Normalize": _normalized,
    "Permute3D": _transposed,
    "PatchImage": lambda given: Patches(
        given.whole("patch_size", 1, MOST_PATCH, 14),
        given.whole("temporal_patch_size", 1, 16, 2),
        given.whole("merge_size", 1, 16, 2),
    ),
}
