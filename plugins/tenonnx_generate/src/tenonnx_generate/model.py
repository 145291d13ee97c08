"""``Model``: a folder's graph as a session, and which of its inputs is what."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import InferenceSession, SessionOptions
from tenonnx_generate.adapter_inputs import AdapterInputs
from tenonnx_generate.config import CONFIG_FILE, Config
from tenonnx_generate.description import ENCODERS, IMAGES, Description, describe
from tenonnx_generate.encoder import Encoder, describe_encoder
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.tensor import FLOAT_NAMES, IDS, float_type

if TYPE_CHECKING:
    from tenonnx_generate.vision import Vision

LAST_ROW = "tenonnx.last_row"
# Session entries: an output computed for the last position alone, an adapter for each row.
ROW_MATRICES = "tenonnx.row_matrices"

# Session entry: attention writes into caches that stay, whose length the mask tells.
CACHES_IN_PLACE = "tenonnx.caches_in_place"

# The part of an input's name that tells that an adapter gives it; it has no value otherwise.
ADAPTER = "lora"


# The token in whose place a feature of an image comes, where a configuration does not tell it:
# Gemma's, whose folders are written by hand.
IMAGE_TOKEN = "<image_soft_token>"

# Time, height and width: the decoder of a model of images has positions [3, rows, tokens].
POSITION_AXES = 3


class Model:
    """A language model, opened once for any number of generators and threads.

    Args:
        config: The folder, or a ``Config`` of it that a caller changed.

    Raises:
        Missing: The folder has not all of its files.
        Refused: The configuration and the graph do not fit each other.
        Unsupported: The model is of a kind that does not run here; the message names it.
    """

    def __init__(self, config: Config | str | os.PathLike[str]) -> None:
        given = config if isinstance(config, Config) else Config(config)
        self._config = given
        self.description: Description = describe(given)
        self.session = self._opened(LAST_ROW)
        self._args = {arg.name: arg for arg in self.session.get_inputs()}
        asked = [arg for name, arg in self._args.items() if ADAPTER in name.lower()]
        overridable = self.session.get_overridable_initializers()
        self.adapter_inputs = AdapterInputs(asked, overridable)
        self.outputs = {arg.name: arg for arg in self.session.get_outputs()}
        self.caches = dict(self._find_caches("key", "value"))
        """The output that continues each cache, by the cache's input."""
        self.states = dict(self._find_caches("conv", "recurrent"))
        """The output that replaces each state of a fixed size, by the state's input."""
        self.in_place = self.type in ENCODERS and any(
            report.name == "caches-in-place" and report.modified
            for report in self.session.transforms
        )
        """Whether caches stay in place, whatever the folder's options say."""
        self.encoder = self._opened_encoder(given)
        """The graph that runs before this one, if the model has one."""
        self.vision = self._opened_vision(given)
        """The graphs of images and of the embedding of tokens, if the model has some."""
        self._check_inputs()

    @property
    def type(self) -> str:
        """The architecture, such as ``llama``."""
        return self.description.type

    @property
    def device_type(self) -> str:
        """The device that it runs on, without its number."""
        return self.session.device.id.partition(":")[0]

    @cached_property
    def whole_session(self) -> InferenceSession:
        """The graph with logits of all positions, of the same weights; opened when first used."""
        return self._opened()

    @cached_property
    def draft(self) -> Model | None:
        """The model that drafts for this one, if the configuration names one."""
        config = self._config.draft()
        return None if config is None else Model(config)

    @property
    def speculative(self) -> dict[str, Any]:
        """``speculative`` as it stands in the configuration.

        Raises:
            Refused: It is no object.
        """
        found = self._config.document.get("speculative", {})
        if not isinstance(found, dict):
            raise Refused(f"speculative in {CONFIG_FILE} is {found!r:.60}; expected an object")
        return found

    @cached_property
    def image_token(self) -> int:
        """The token in whose place a feature of an image comes.

        Raises:
            Refused: Neither the configuration nor the tokenizer has one.
        """
        told = None if self.vision is None else self.vision.about.image_token
        if told is not None:
            return told
        # By name, as below.
        tokenizer = importlib.import_module("tenonnx_generate.tokenizer")
        found: int = tokenizer.Tokenizer(self).to_token_id(IMAGE_TOKEN)
        if found < 0:
            raise Refused(f"{CONFIG_FILE} has no image_token_id, and there is no {IMAGE_TOKEN}")
        return found

    def input_dtype(self, role: str) -> np.dtype[Any] | None:
        """Return the element type of an input by its role, or ``None`` if the graph has it not."""
        arg = self._args.get(self.description.inputs[role])
        return None if arg is None else IDS[arg.type]

    @property
    def position_axes(self) -> int:
        """The number of axes that positions have: 3 in models of images, in rows of their own."""
        arg = self._args.get(self.description.inputs["position_ids"])
        return POSITION_AXES if arg is not None and len(arg.shape) == POSITION_AXES else 1

    def cache_dtype(self, name: str) -> np.dtype[Any]:
        """Return the element type of a cache."""
        return float_type(self._args[name].type)

    def cache_shape(self, name: str, rows: int, length: int) -> list[int]:
        """Return the shape of a cache that holds so many tokens of so many sequences.

        Raises:
            Refused: The graph has other heads than the configuration says.
        """
        about = self.description
        shape = self._args[name].shape
        for axis, (key, value) in enumerate(
            (("num_key_value_heads", about.key_heads), ("head_size", about.head_size))
        ):
            found = shape[1 + 2 * axis]
            if isinstance(found, int) and found != value:
                raise Refused(f"{key} is {value}, but {name!r} of the graph has {found}")
        return [rows, about.key_heads, length, about.head_size]

    def state_shape(self, name: str, rows: int) -> list[int]:
        """Return the shape of a state of so many sequences.

        Raises:
            Unsupported: The graph does not say how large it is.
        """
        shape = [rows]
        for size in self._args[name].shape[1:]:
            if not isinstance(size, int):
                raise Unsupported(f"the graph has a state {name!r} whose size {size!r} is open")
            shape.append(size)
        return shape

    def create_multimodal_processor(self) -> Any:
        """Return what makes inputs of prompts and sounds or images.

        Raises:
            Unsupported: The model takes neither.
        """
        # By name: they import this module, and few models take sounds or images.
        if self.vision is not None:
            images = importlib.import_module("tenonnx_generate.image_processor")
            return images.ImageProcessor(self)
        processor = importlib.import_module("tenonnx_generate.processor")
        return processor.MultiModalProcessor(self)

    def _opened_encoder(self, config: Config) -> Encoder | None:
        if self.type not in ENCODERS:
            return None
        about = describe_encoder(config, self.description)
        options = configured(SessionOptions(), about.session)
        return Encoder(about, options, self._args, self.description.layers)

    def _opened_vision(self, config: Config) -> Vision | None:
        if self.type not in IMAGES:
            return None
        from tenonnx_generate.vision import Vision, describe_vision  # few models take images

        about = describe_vision(config, self.description)
        parts = (about.vision, about.embedding)
        vision, embedding = (configured(SessionOptions(), part.session) for part in parts)
        return Vision(about, (vision, embedding), self.type)

    def _opened(self, *entries: str) -> InferenceSession:
        """Open the graph; some session entries name its logits."""
        about = self.description
        options = session_options(about)
        for entry in entries:
            options.add_session_config_entry(entry, about.outputs["logits"])
        return InferenceSession(about.path, options, providers=about.providers)

    def _find_caches(self, *kinds: str) -> Iterable[tuple[str, str]]:
        inputs, outputs = self.description.inputs, self.description.outputs
        for layer in range(self.description.layers):
            for kind in kinds:
                past = inputs[f"past_{kind}_names"].replace("%d", str(layer))
                present = outputs[f"present_{kind}_names"].replace("%d", str(layer))
                if past in self._args:  # some layers have none
                    if present not in self.outputs:
                        raise Refused(f"the graph has the input {past!r} and no output {present!r}")
                    yield past, present

    def _check_inputs(self) -> None:
        about = self.description
        taken = "input_ids" if self.vision is None else "inputs_embeds"
        if about.inputs[taken] not in self._args:
            raise Refused(f"the graph has no input {about.inputs[taken]!r}")
        if about.outputs["logits"] not in self.outputs:
            raise Refused(f"the graph has no output {about.outputs['logits']!r}")
        if not self.caches:
            raise Refused(f"the graph has no input {about.inputs['past_key_names']!r} of any layer")
        ids = {about.inputs[role] for role in (taken, "attention_mask", "position_ids")}
        fed = {} if self.encoder is None else self.encoder.feeds
        for name, arg in self._args.items():
            if name in self.adapter_inputs.asked or name in fed:
                continue
            if name in self.states:
                self.state_shape(name, 1)
                self.cache_dtype(name)
                continue
            if name not in ids and name not in self.caches:
                raise Unsupported(f"the graph asks for the input {name!r}, which nobody gives")
            types, rank = (IDS.keys(), 2) if name in ids else (FLOAT_NAMES.keys(), 4)
            if name == about.inputs["inputs_embeds"]:
                types, rank = FLOAT_NAMES.keys(), 3
            # Positions in time, height and width: of text, they are the same.
            if name == about.inputs["position_ids"] and self.position_axes > 1:
                rank = POSITION_AXES
            if arg.type not in types or len(arg.shape) != rank:
                raise Unsupported(
                    f"input {name!r} is {arg.type}{arg.shape}; expected {rank} axes of "
                    f"{' or '.join(types)}"
                )
        for name in self.caches:
            self.cache_shape(name, 1, 1)


def session_options(about: Description) -> SessionOptions:
    """Return the options that a configuration asks for; those of onnxruntime's own do nothing.

    Raises:
        InvalidArgument: One has a value that cannot be.
    """
    options = SessionOptions()
    options.add_session_config_entry(ROW_MATRICES, "1")
    if about.type in ENCODERS:  # whose folders have no attention that does that itself
        options.add_session_config_entry(CACHES_IN_PLACE, "1")
    return configured(options, about.session)


def configured(options: SessionOptions, told: Mapping[str, Any]) -> SessionOptions:
    """Add what a configuration's ``session_options`` say."""
    if threads := told.get("intra_op_num_threads"):
        options.intra_op_num_threads = threads
    entries = told.get("config_entries", {})
    for key, value in entries.items() if isinstance(entries, dict) else ():
        options.add_session_config_entry(key, str(value))
    if isinstance(level := told.get("graph_optimization_level"), str):
        options.add_session_config_entry("session.graph_optimization_level", _level(level))
    return options


def _level(name: str) -> str:
    levels = {"ORT_DISABLE_ALL": 0, "ORT_ENABLE_BASIC": 1, "ORT_ENABLE_EXTENDED": 2}
    return str(levels.get(name, 99))
