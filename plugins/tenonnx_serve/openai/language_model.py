"""A language model that is served: one session, one tokenizer, and what they are asked for."""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import InferenceSession
from tenonnx.cli import memory
from tenonnx_generate import Adapters, Config, Generator, GeneratorParams, Model, Tokenizer
from tenonnx_generate.guidance import vocabulary_of
from tenonnx_serve.config import ModelConfig, rows_of, threads_of
from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.settings import Settings
from tenonnx_serve.statistics import Statistics

NDArray = np.ndarray[Any, np.dtype[Any]]

LONGEST_TOKEN = 256
"""Characters of a token at most: a text that must be longer than the context is not encoded."""

WARM_TOKENS = 4

SHARE, MOST_ROWS = 0.25, 32
"""The share of the free memory for a model's caches, and the most rows of them."""

ADAPTERS = "adapters"
"""The folder of a model's adapters, beside its ``genai_config.json``."""


class LanguageModel:
    """One version of a language model.

    Args:
        name: What clients call it.
        version: A number, as text.
        folder: One of onnxruntime-genai's.
        settings: How to open it.
        said: Its configuration, whose parameters go before the settings.

    Attributes:
        rows: How many texts share a step.
        adapters: Those of the folder ``adapters``, by the names of their files.
        created: When its configuration was written, in seconds since 1970.
        context: How many tokens a prompt and its answer may have together: the ``max_length`` of
            the folder, or its context.

    Raises:
        TenonnxError: A file is missing or wrong, or the model is of a kind that does not run.
    """

    def __init__(
        self, name: str, version: str, folder: Path, settings: Settings, said: ModelConfig
    ) -> None:
        config = Config(folder)
        _configure(config, settings, threads_of(said) or settings.intra_op_threads)
        self.name, self.version = name, version
        self.model = Model(config)
        self.tokenizer = Tokenizer(self.model)
        self.adapters = _adapters_in(folder, self.model)
        self.statistics = Statistics()
        self.context = GeneratorParams(
            self.model
        ).max_length  # of the folder's search, or the context
        self.rows = rows_of(said) or settings.rows or fitting_rows(self.model, self.context)
        self.created = int((folder / "genai_config.json").stat().st_mtime)

    @property
    def session(self) -> InferenceSession:
        """The session that runs the graph."""
        return self.model.session

    @cached_property
    def processor(self) -> Any:
        """The processor that turns sounds into inputs."""
        return self.model.create_multimodal_processor()

    @property
    def takes_sounds(self) -> bool:
        """Return whether it transcribes sounds, and takes no texts."""
        return self.model.encoder is not None and self.model.encoder.audio is not None

    def warm_up(self) -> None:
        """Generate a few tokens, which has kernels made and captures what steps repeat."""
        params = GeneratorParams(self.model)
        size = min(WARM_TOKENS, self.context - 1)
        params.set_search_options(max_length=min(2 * WARM_TOKENS, self.context), do_sample=False)
        generator = Generator(self.model, params)
        if self.takes_sounds:
            mel = self.processor.mel
            silence = np.zeros((1, mel.bands, mel.frames), np.float32)
            generator.set_model_input("audio_features", silence)
        generator.append_tokens(np.zeros(size, np.int32))
        while not generator.is_done():
            generator.generate_next_token()

    def encode(self, text: str, param: str, *, special: bool) -> NDArray:
        """Return a text's tokens.

        Args:
            text: It.
            param: The part of the request that it comes from.
            special: Add those that a text begins or ends with.

        Raises:
            Wrong: It is longer than the model's context.
        """
        if len(text) > LONGEST_TOKEN * self.context:
            raise too_long(f"more than {self.context}", self.context, param)
        return self.tokenizer.encode(text, add_special_tokens=special)

    def written(self, token: int) -> bytes:
        """Return a token's bytes, which may be a part of a character."""
        if not self.model.description.eos:  # which the library wants
            return self.tokenizer.decode([token]).encode()
        found: bytes = vocabulary_of(self.model).tokens.decode_bytes([token])
        return b"" if found == b"<[%d]>" % token else found  # how it writes those that are none

    def check_length(self, prompt: int, most: int | None, limit: int, param: str) -> int:
        """Return how many tokens may follow a prompt.

        Args:
            prompt: Tokens of the prompt.
            most: Tokens that the request asks for at most.
            limit: Those that the server allows; 0 for any number.
            param: The part of the request that the prompt comes from.

        Raises:
            Wrong: They are more than the context has, or the server allows, or there is no prompt.
        """
        if not prompt:
            raise Wrong(f"{param} has no tokens: there is nothing to continue", param)
        if prompt + (most or 1) > self.context:
            asked = f"{prompt} in the prompt and {most or 1} to generate"
            raise too_long(asked, self.context, param)
        if most and limit and most > limit:
            raise Wrong(f"max_tokens is {most}; this server allows {limit}", "max_tokens")
        room = min(self.context - prompt, limit or self.context)
        return room if most is None else most


def fitting_rows(model: Model, tokens: int) -> int:
    """Return how many texts of so many tokens have caches in a part of the free memory.

    Caches take memory as texts grow, and give it back: the number is of texts that are all whole.
    """
    size = sum(
        math.prod(model.cache_shape(name, 1, tokens)) * model.cache_dtype(name).itemsize
        for name in model.caches
    )
    total, limit = memory.total(), memory.cgroup_limit()
    free = 0 if total is None else total[1] if limit is None else min(total[1], limit)
    return min(max(int(free * SHARE / size), 1), MOST_ROWS)


def too_long(asked: str, context: int, param: str) -> Wrong:
    """Return the error of a prompt that does not fit into the context."""
    return Wrong(
        f"the model's maximum context length is {context} tokens; the request has {asked}",
        param,
        "context_length_exceeded",
    )


def _adapters_in(folder: Path, model: Model) -> Adapters | None:
    """Return the adapters of a folder; ``None`` if it has none."""
    files = sorted((folder / ADAPTERS).glob("*.onnx_adapter"))
    adapters = Adapters(model) if files else None
    for file in files:
        assert adapters is not None
        adapters.load(file, file.stem)
    return adapters


def _configure(config: Config, settings: Settings, threads: int) -> None:
    """Have a folder's model opened as the server was told, whatever the folder says."""
    if settings.providers:
        config.set_providers((name, dict(options)) for name, options in settings.providers)
    if threads:
        told = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": told}}}))
