"""``Vision``: the graphs that make the inputs of a decoder of images and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tenonnx import InferenceSession, SessionOptions
from tenonnx_generate.config import CONFIG_FILE, Config
from tenonnx_generate.description import GRIDS, Description
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.fields import names_of, number_of, providers_of, section_of, text_of
from tenonnx_generate.files import inside
from tenonnx_generate.tensor import FLOAT_NAMES, IDS, float_type

NDArray = np.ndarray[Any, np.dtype[Any]]

PIXELS, GRID, FEATURES = "pixel_values", "image_grid_thw", "image_features"

VISION_INPUTS = {PIXELS: PIXELS, GRID: GRID}
VISION_OUTPUTS = {FEATURES: FEATURES}
EMBEDDING_INPUTS = {"input_ids": "input_ids", FEATURES: FEATURES}
EMBEDDING_OUTPUTS = {"inputs_embeds": "inputs_embeds"}

# Patches of one side that a token has at most, patches of one side of an image, and numbers of a
# token.
MOST_MERGED, MOST_PATCHES, MOST_WIDTH = 16, 1 << 16, 1 << 17


@dataclass(frozen=True)
class Part:
    """One graph as its folder describes it: its file, and the names of inputs and outputs."""

    path: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    providers: list[tuple[str, dict[str, str]]]
    session: dict[str, Any]

    def opened(self, options: SessionOptions) -> InferenceSession:
        """Open the graph."""
        return InferenceSession(self.path, options, providers=self.providers)


@dataclass(frozen=True)
class VisionDescription:
    """The graphs of a model of images as its folder describes them.

    Attributes:
        vision: From an image's pixels to features, a row for each token of it.
        embedding: From tokens and features to the decoder's inputs.
        processing: The file that tells how pixels are made of an image.
        merged: A token is of ``merged`` by ``merged`` patches of an image that has a grid.
        width: The width of features and embedded tokens.
        image_token: The token in whose place a feature comes, if the configuration tells it.
    """

    vision: Part
    embedding: Part
    processing: str
    merged: int
    width: int
    image_token: int | None


def describe_vision(config: Config, about: Description) -> VisionDescription:
    """Return what a configuration says of images.

    Raises:
        Refused: Something of it cannot be.
        Missing: A graph's file is not there.
        Unsupported: The images pass several graphs.
    """
    model = section_of(config.document, "model")
    vision = section_of(model, "vision")
    if vision.get("pipeline"):
        raise Unsupported(f"{CONFIG_FILE} has a pipeline for images: they pass several graphs")
    if vision.get("adapter_filename"):
        raise Unsupported(f"{CONFIG_FILE} has an adapter for images, which does not run here")
    token = None
    if model.get("image_token_id") is not None:
        token = number_of(model, "image_token_id", 0, about.vocabulary - 1)
    return VisionDescription(
        _part(config, about, vision, "vision.onnx", VISION_INPUTS, VISION_OUTPUTS),
        _part(
            config,
            about,
            section_of(model, "embedding"),
            "embedding.onnx",
            EMBEDDING_INPUTS,
            EMBEDDING_OUTPUTS,
        ),
        text_of(vision, "config_filename", "processor_config.json"),
        number_of(vision, "spatial_merge_size", 1, MOST_MERGED, 2),
        number_of(section_of(model, "decoder"), "hidden_size", 1, MOST_WIDTH),
        token,
    )


def _part(
    config: Config,
    about: Description,
    section: Mapping[str, Any],
    filename: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
) -> Part:
    own = section_of(section, "session_options", {})
    session = about.session | {key: value for key, value in own.items() if value}
    return Part(
        path=inside(config.folder, text_of(section, "filename", filename)),
        inputs=names_of(section_of(section, "inputs", {}), inputs),
        outputs=names_of(section_of(section, "outputs", {}), outputs),
        providers=providers_of(session),
        session=session,
    )


class Vision:
    """The sessions before a decoder: of images, and of the embedding of tokens and images.

    Args:
        about: What the folder says.
        options: The sessions' options: of the vision's graph, and of the embedding's.
        kind: The model's type.

    Raises:
        Refused: The graphs lack an input or an output that the folder names.
        Unsupported: One takes something that nobody gives.
    """

    def __init__(
        self, about: VisionDescription, options: tuple[SessionOptions, SessionOptions], kind: str
    ) -> None:
        self.about = about
        self._vision = about.vision.opened(options[0])
        self._embedding = about.embedding.opened(options[1])
        self._pixels = _checked(self._vision, about.vision, {PIXELS: FLOAT_NAMES}, {GRID: IDS})[
            about.vision.inputs[PIXELS]
        ]
        ids, features = about.embedding.inputs["input_ids"], about.embedding.inputs[FEATURES]
        found = _checked(
            self._embedding, about.embedding, {"input_ids": IDS, FEATURES: FLOAT_NAMES}, {}
        )
        self.token_dtype = IDS[found[ids].type]
        self._features = found[features]
        self.has_grids = kind in GRIDS
        """Whether images have different numbers of patches, whose places are positions."""

    @cached_property
    def image_tokens(self) -> int | None:
        """The number of tokens of each image, if it is the same for all and the graph tells it."""
        (output,) = (
            arg
            for arg in self._vision.get_outputs()
            if arg.name == self.about.vision.outputs[FEATURES]
        )
        size = output.shape[-2] if len(output.shape) == 3 and not self.has_grids else None
        return size if isinstance(size, int) else None

    def pixels(self, array: NDArray) -> NDArray:
        """Return images' pixels as the graph takes them.

        Raises:
            Refused: They have another number of axes.
        """
        rank = 2 if self.has_grids else 4
        if array.ndim != rank or not array.size:
            raise Refused(f"{PIXELS} are {list(array.shape)}; expected {rank} axes")
        return np.ascontiguousarray(array, float_type(self._pixels.type))

    def features(self, pixels: NDArray, grids: NDArray | None) -> list[NDArray]:
        """Return the features [tokens, width] of each image.

        Args:
            pixels: All images': [images, colors, height, width], or the patches of all, one image
                after the other.
            grids: The patches of each image in time, height and width.

        Raises:
            Refused: The grids are not those of the pixels.
        """
        return [self._seen(*each) for each in self._images(pixels, grids)]

    def embedded(self, tokens: NDArray, features: NDArray) -> NDArray:
        """Return the decoder's inputs [rows, tokens, width].

        Args:
            tokens: The tokens [rows, tokens].
            features: Those of its image tokens, in order [image tokens, width].
        """
        part = self.about.embedding
        shaped = features[None] if len(self._features.shape) == 3 else features
        feed = {
            part.inputs["input_ids"]: tokens.astype(self.token_dtype),
            part.inputs[FEATURES]: shaped.astype(float_type(self._features.type), copy=False),
        }
        found: NDArray = self._embedding.run([part.outputs["inputs_embeds"]], feed)[0]
        return found

    def _images(
        self, pixels: NDArray, grids: NDArray | None
    ) -> Iterator[tuple[NDArray, NDArray | None]]:
        """Yield the pixels of each image, and its grid."""
        if not self.has_grids:
            for number in range(len(pixels)):
                yield pixels[number : number + 1], None
            return
        if grids is None:
            raise Refused(f"there are {PIXELS} without {GRID}")
        merged = self.about.merged
        whole = (
            (grids > 0).all()
            and (grids <= MOST_PATCHES).all()
            and not (grids[:, 1:] % merged).any()
        )
        sizes = np.prod(grids, axis=1) if whole else np.zeros(1, np.int64)
        if sizes.sum() != len(pixels):
            raise Refused(
                f"{GRID} is {grids.tolist()!r:.80}; expected {len(pixels)} patches in all, and a "
                f"height and a width that are multiples of {merged}"
            )
        ends = np.cumsum(sizes)
        for number, (end, size) in enumerate(zip(ends, sizes, strict=True)):
            yield pixels[end - size : end], grids[number : number + 1]

    def _seen(self, pixels: NDArray, grid: NDArray | None) -> NDArray:
        """Run the graph for one image."""
        part = self.about.vision
        rank = len(self._pixels.shape)
        feed = {part.inputs[PIXELS]: pixels.reshape([1] * (rank - pixels.ndim) + [*pixels.shape])}
        types = {arg.name: arg.type for arg in self._vision.get_inputs()}
        if grid is not None and (name := part.inputs[GRID]) in types:
            feed[name] = grid.astype(IDS[types[name]])
        found: NDArray = self._vision.run([part.outputs[FEATURES]], feed)[0]
        return found.reshape(-1, found.shape[-1])


def _checked(
    session: InferenceSession,
    part: Part,
    needed: Mapping[str, Mapping[str, Any]],
    optional: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return a graph's inputs by name; check that they are those that a folder names."""
    inputs = {arg.name: arg for arg in session.get_inputs()}
    known = {part.inputs[role]: types for role, types in {**needed, **optional}.items()}
    for role in needed:
        if part.inputs[role] not in inputs:
            raise Refused(f"{part.path} has no input {part.inputs[role]!r}")
    for name, arg in inputs.items():
        if name not in known:
            raise Unsupported(f"{part.path} asks for the input {name!r}, which nobody gives")
        if arg.type not in known[name]:
            raise Unsupported(f"input {name!r} of {part.path} is {arg.type}")
    outputs = {arg.name for arg in session.get_outputs()}
    for name in part.outputs.values():
        if name not in outputs:
            raise Refused(f"{part.path} has no output {name!r}")
    return inputs
