"""The images of a generator's sequence, their places in it and the positions of its tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_generate.errors import Refused
from tenonnx_generate.vision import GRID, PIXELS, Vision

NDArray = np.ndarray[Any, np.dtype[Any]]

# Inputs that processors make for other runtimes; here the tokens tell the same.
TOLD_BY_TOKENS = ("num_image_tokens", "token_type_ids")


class ImageSource:
    """The images of a sequence, and the decoder's inputs of its tokens.

    Args:
        vision: The graphs before the decoder.
        image_token: The token in whose place a feature of an image comes.
    """

    def __init__(self, vision: Vision, image_token: int) -> None:
        self._vision, self._token = vision, image_token
        self._pixels: NDArray | None = None
        self._grids: NDArray | None = None
        self._features: list[NDArray] | None = []
        self._rows = np.zeros((0, vision.about.width))
        """The features of all images, one after the other."""
        self._places = np.zeros(0, np.int64)
        """The places of the image tokens in the sequence."""
        self._positions = np.zeros((3, 0), np.int64)
        """Time, height and width of each token up to the end of the last image."""

    def take(self, name: str, array: NDArray) -> None:
        """Take pixels of images, or their grids; the images before them are forgotten.

        Raises:
            Refused: The model takes no such input, or the array does not fit.
        """
        inputs = self._vision.about.vision.inputs
        if name in (PIXELS, inputs[PIXELS]):
            self._pixels = self._vision.pixels(array)
        elif name in (GRID, inputs[GRID]) and self._vision.has_grids:
            if array.dtype.kind not in "iu" or array.ndim != 2 or array.shape[1] != 3:
                raise Refused(f"{GRID} is {array.dtype}{list(array.shape)}; expected [images, 3]")
            self._grids = array.astype(np.int64)
        elif name not in TOLD_BY_TOKENS:
            raise Refused(f"the model takes no {name!r}", hint=f"it takes {PIXELS!r}")
        self._features = None

    def check(self, tokens: NDArray) -> None:
        """Check that a sequence has a place for each feature, and note the places.

        Raises:
            Refused: It has more or fewer, or those of an image do not follow each other.
        """
        if self._features is None:
            self._see()
        places = np.flatnonzero(tokens == self._token)
        if len(places) != len(self._rows):
            raise Refused(
                f"the prompt has {len(places)} tokens for images, whose features are "
                f"{len(self._rows)}",
                hint="processor(prompt, images=images) writes as many as an image has",
            )
        end = 0
        for features in self._features or ():
            of_image = places[end : end + len(features)]
            end += len(features)
            if of_image[-1] - of_image[0] != len(features) - 1:
                raise Refused("the tokens of an image do not follow each other in the prompt")
        self.place(tokens)

    def place(self, tokens: NDArray) -> None:
        """Note the places of images in a sequence that begins with some of the checked tokens."""
        self._places = np.flatnonzero(tokens == self._token)[: len(self._rows)]
        has_grids = self._grids is not None and len(self._places)
        self._positions = self._image_positions() if has_grids else np.zeros((3, 0), np.int64)

    def embedded(self, tokens: NDArray, start: int) -> NDArray:
        """Return the decoder's inputs of tokens [rows, tokens] that begin at a place."""
        low, high = np.searchsorted(self._places, (start, start + tokens.shape[1]))
        return self._vision.embedded(tokens, self._rows[low:high])

    def positions(self, places: NDArray) -> NDArray:
        """Return time, height and width [3, ...] of the tokens at some places.

        Those of text count on from the greatest before; an image's begin there, and its tokens
        have their place in it.
        """
        known = self._positions.shape[1]
        if not known:
            return np.repeat(places[None], 3, axis=0)
        after = places - known + self._positions.max() + 1
        inside = self._positions[:, np.minimum(places, known - 1)]
        found: NDArray = np.where(places < known, inside, after)
        return found

    def _see(self) -> None:
        if self._pixels is None:
            raise Refused(f"there is no {PIXELS!r}", hint="processor(prompt, images=...) makes it")
        self._features = self._vision.features(self._pixels, self._grids)
        self._rows = np.concatenate(self._features)

    def _image_positions(self) -> NDArray:
        merged, parts, end, following = self._vision.about.merged, list[NDArray](), 0, 0
        assert self._grids is not None
        first = 0
        for grid in self._grids:
            if first >= len(self._places):
                break
            time, height, width = grid[0], grid[1] // merged, grid[2] // merged
            start = int(self._places[first])
            text = np.arange(following, following + start - end)
            parts.append(np.repeat(text[None], 3, axis=0))
            following += start - end
            # All of an image is at one time: only a film's frames differ.
            inside = np.indices((time, height, width)).reshape(3, -1)
            inside[0] = 0
            parts.append(inside + following)
            following += int(inside.max()) + 1
            first += inside.shape[1]
            end = start + inside.shape[1]
        return np.concatenate(parts, axis=1)
