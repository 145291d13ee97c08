"""``ImageProcessor``: prompts and images as the inputs of a model."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_generate.encoder import TOKENS
from tenonnx_generate.errors import Missing, Refused, Unsupported
from tenonnx_generate.files import inside
from tenonnx_generate.image_transforms import Grid, read_processing
from tenonnx_generate.processor import NamedTensors
from tenonnx_generate.vision import GRID, PIXELS

if TYPE_CHECKING:
    from tenonnx_generate.model import Model
    from tenonnx_generate.picture_files import Images
    from tenonnx_generate.streaming import TokenizerStream

NDArray = np.ndarray[Any, np.dtype[Any]]

# The places of images in prompts of Gemma, and what stands there around the tokens of an image.
GEMMA_PLACE = re.compile(re.escape("<start_of_image>"))
GEMMA_BEGIN, GEMMA_END = "\n\n<start_of_image>", "<end_of_image>\n\n"

# Tokens of an image of Gemma's, where the graph does not tell it.
GEMMA_TOKENS = 256

# The same of Qwen: templates write one token, or nothing, between begin and end.
QWEN_BEGIN, QWEN_END = "<|vision_start|>", "<|vision_end|>"
QWEN_PLACE = re.compile(re.escape(QWEN_BEGIN) + ".*?" + re.escape(QWEN_END), re.DOTALL)


class ImageProcessor:
    """The maker of a model's inputs from prompts and images.

    Args:
        model: The model.

    Raises:
        Unsupported: It takes no images, or the folder has an operation that does not run here.
        Missing: The folder lacks the file that tells how pixels are made, or the tokenizer.
        Refused: That file tells what cannot be.
    """

    def __init__(self, model: Model) -> None:
        from tenonnx_generate.tokenizer import Tokenizer  # it imports the model's module

        if model.vision is None:
            raise Unsupported(f"a model of the type {model.type!r} takes no images")
        self._vision, self._model = model.vision, model
        folder, name = model.description.folder, model.vision.about.processing
        if not os.path.isfile(os.path.join(folder, name)):
            raise Missing(
                f"{folder} has no {name}", hint="it tells how pixels are made of an image"
            )
        self._processing = read_processing(inside(folder, name))
        self.tokenizer = Tokenizer(model)

    def __call__(
        self,
        prompt: str | None = None,
        *,
        images: Images | None = None,
        audios: None = None,
    ) -> NamedTensors:
        """Return ``input_ids``, and of images ``pixel_values`` and the grids of their patches.

        Args:
            prompt: A text with its special tokens and a place for each image, as the chat template
                writes it: ``<start_of_image>`` (Gemma), or ``<|vision_start|>`` up to
                ``<|vision_end|>`` (Qwen). Without one, images alone.
            images: The images, in the order of their places.
            audios: There are none.

        Raises:
            Refused: The prompt has not a place for each image.
            Unsupported: There are sounds.
        """
        if audios is not None:
            raise Unsupported("the model takes no sounds")
        made, counts = NamedTensors(), list[int]()
        if images is not None:
            counts = self._take(images, made)
        text = self._expanded(prompt or "", counts)
        made[TOKENS] = self.tokenizer.encode(text, add_special_tokens=False)[None]
        return made

    def decode(self, tokens: Any) -> str:
        """Return the text of tokens, without special ones."""
        return self.tokenizer.decode(tokens)

    def create_stream(self) -> TokenizerStream:
        """Return what decodes one sequence's tokens as they come."""
        return self.tokenizer.create_stream()

    def _take(self, images: Images, made: NamedTensors) -> list[int]:
        """Make the inputs of images; return how many tokens each has."""
        context = self._model.description.context
        found, grids, counts = list[NDArray](), list[Grid](), list[int]()
        for picture in images:
            pixels, grid = self._processing(picture.pixels())
            if self._vision.has_grids != (grid is not None):
                raise Refused(
                    f"{self._vision.about.processing} makes no input of a model of the type "
                    f"{self._model.type!r}"
                )
            found.append(pixels)
            counts.append(self._vision.image_tokens or GEMMA_TOKENS)
            if grid is not None:
                grids.append(grid)
                counts[-1] = int(np.prod(grid)) // self._vision.about.merged**2
            if sum(counts) > context:
                raise Refused(
                    f"{len(counts)} images have {sum(counts)} tokens; the context has {context}",
                    hint="give fewer images, or smaller ones",
                )
        made[PIXELS] = np.concatenate(found) if grids else np.stack(found)
        if grids:
            made[GRID] = np.array(grids)
        return counts

    def _expanded(self, prompt: str, counts: Sequence[int]) -> str:
        """Return a prompt with the tokens of its images."""
        grids = self._vision.has_grids
        place = QWEN_PLACE if grids else GEMMA_PLACE
        begin, end = (QWEN_BEGIN, QWEN_END) if grids else (GEMMA_BEGIN, GEMMA_END)
        text = prompt or (QWEN_BEGIN + QWEN_END if grids else "<start_of_image>") * len(counts)
        if (places := len(place.findall(text))) != len(counts):
            raise Refused(
                f"the prompt has {places} places for images, and there are {len(counts)} images"
            )
        token, rest = self.tokenizer.written(self._model.image_token), iter(counts)
        written: Callable[[re.Match[str]], str] = lambda _: begin + token * next(rest) + end  # noqa: E731
        return place.sub(written, text)
