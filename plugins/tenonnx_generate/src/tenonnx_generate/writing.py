"""A text or a chat that goes on, with what it took."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx_generate.errors import Refused
from tenonnx_generate.generator import Generator
from tenonnx_generate.model import Model
from tenonnx_generate.options import GeneratorParams
from tenonnx_generate.stops import StopStrings
from tenonnx_generate.tokenizer import Tokenizer

NDArray = np.ndarray[Any, np.dtype[Any]]


class Figures:
    """The counts and times of texts.

    Attributes:
        read: Tokens of prompts that were run.
        reused: Tokens of prompts whose caches were there already.
        written: Tokens that were generated.
        reading: Seconds until the first token after each prompt.
        writing: Seconds for all others.
    """

    def __init__(self) -> None:
        self.read = self.reused = self.written = 0
        self.reading = self.writing = 0.0
        self._first = 0

    @property
    def acceptance(self) -> float | None:
        """Of the drafted tokens that were checked, the share that came; nothing without any."""
        return None

    @property
    def rate(self) -> float:
        """Tokens a second, without the first after each prompt."""
        return (self.written - self._first) / self.writing if self.writing else 0.0

    def generated(
        self,
        generator: Generator,
        tokenizer: Tokenizer,
        strings: Sequence[str],
        most: int,
        start: float,
    ) -> Iterator[str]:
        """Yield what a generator writes, piece by piece.

        Args:
            generator: It has a prompt.
            tokenizer: The model's.
            strings: The text ends before any of them.
            most: How many tokens come at most.
            start: When the prompt was begun.
        """
        stream, stops, written = tokenizer.create_stream(), StopStrings(strings), 0
        begun = generator.token_count()
        while written < most and not generator.is_done() and not stops.stopped:
            generator.generate_next_token()
            now = time.perf_counter()
            if written:
                self.writing += now - start
            else:
                self.reading += now - start
                self._first += 1
            written += 1
            self.written += 1
            if generator.streams:
                yield stops.take(stream.decode(int(generator.get_next_tokens()[0])))
            start = time.perf_counter()
        if generator.streams:
            last = stream.finish()
        else:
            last = tokenizer.decode(generator.get_sequence(0)[begun:])
        yield stops.take(last) + stops.finish()


class Writer(Figures):
    """One sequence of a model, and its text.

    Args:
        model: The model.
        search: Search options.
        stops: Strings that a text ends before.
        schema: A JSON schema that each text is held to; none if empty.
        adapter: An adapter, as ``FILE`` or ``NAME=FILE``; none if empty.
        draft: The folder of a model that drafts tokens; none if empty.
        drafted: The number of tokens drafted at once; by default the folder's, or 3 for ``draft``.

        images: Files of images that ``continued``'s text is about.

    Raises:
        Refused: The model takes sounds, or beams would end before strings.
    """

    def __init__(
        self,
        model: Model,
        search: Mapping[str, Any],
        stops: Sequence[str] = (),
        schema: str = "",
        adapter: str = "",
        draft: str = "",
        drafted: int | None = None,
        images: Sequence[str] = (),
    ) -> None:
        super().__init__()
        if model.encoder is not None and model.encoder.audio is not None:
            raise Refused(
                f"a model of the type {model.type!r} transcribes sounds",
                hint="--audio FILE names one",
            )
        self._model, self._tokenizer = model, Tokenizer(model)
        params = GeneratorParams(model)
        params.set_search_options(**search)
        if schema:
            params.set_guidance("json_schema", schema)
        if draft:
            params.set_speculative_options(max_draft_tokens=drafted or 3)
            params.set_draft_model(Model(draft))
        elif drafted:
            if not params.drafts:
                raise Refused("no model drafts tokens", hint="--draft FOLDER names one")
            params.set_speculative_options(max_draft_tokens=drafted)
        self._beams = params.get_search_options()["num_beams"] > 1
        if self._beams and stops:
            raise Refused(
                "beams end at a token, and not before a text", hint="leave the stop strings out"
            )
        self._stops, self._images = tuple(stops), tuple(images)
        StopStrings(self._stops)
        self._generator = Generator(model, params)
        if adapter:
            self._adapt(model, adapter)
        self._prompt = 0
        self._continues = model.encoder is None

    @property
    def acceptance(self) -> float | None:
        """Of the drafted tokens that were checked, the share that came; nothing without any."""
        told = self._generator.get_speculative_stats()
        return told["acceptance_rate"] if told["draft_tokens_evaluated"] else None

    def continued(self, text: str, most: int) -> Iterator[str]:
        """Yield what follows a text, piece by piece; at most so many tokens.

        With images, the text is a message about them, and what follows is the answer.
        """
        if self._images:
            return self._about_images(text, most)
        return self._after(self._tokenizer.encode(text), most)

    def answered(self, messages: Sequence[dict[str, Any]], most: int) -> Iterator[str]:
        """Yield the answer to messages; what they begin with as before is not run again."""
        prompt = self._tokenizer.apply_chat_template(messages)
        # The template writes the special tokens itself.
        self._tokenizer.update_options(add_special_tokens=False)
        return self._after(self._tokenizer.encode(prompt), most)

    def _about_images(self, text: str, most: int) -> Iterator[str]:
        """Yield the answer to a message whose images come before its text."""
        from tenonnx_generate.encoder import TOKENS
        from tenonnx_generate.picture_files import Images  # few texts have some

        start = time.perf_counter()
        content = [*({"type": "image"} for _ in self._images), {"type": "text", "text": text}]
        prompt = self._tokenizer.apply_chat_template([{"role": "user", "content": content}])
        given = self._model.create_multimodal_processor()(prompt, images=Images.open(*self._images))
        self._generator.rewind_to(0)
        self._generator.set_inputs(given)
        self.read += given[TOKENS].shape()[1]
        yield from self.generated(self._generator, self._tokenizer, self._stops, most, start)

    def _adapt(self, model: Model, adapter: str) -> None:
        from tenonnx_generate.adapters import Adapters

        name, _, file = adapter.rpartition("=")
        if Path(adapter).is_file():  # whose name may have one, too
            name, file = "", adapter
        adapters, name = Adapters(model), name or Path(file).stem
        adapters.load(file, name)
        self._generator.set_active_adapter(adapters, name)

    def _after(self, prompt: NDArray, most: int) -> Iterator[str]:
        start = time.perf_counter()
        new = self._begun(prompt)
        self._generator.append_tokens(new)
        self.read += len(new)
        yield from self.generated(self._generator, self._tokenizer, self._stops, most, start)

    def _begun(self, prompt: NDArray) -> NDArray:
        """Go back to where a prompt differs from the sequence; return the rest of it."""
        if not self._continues:  # an encoder reads the whole text
            self._generator.rewind_to(0)
            return prompt
        there = self._generator.get_sequence(0)
        size = min(len(there), len(prompt) - 1)
        differ = np.flatnonzero(there[:size] != prompt[:size])
        common = int(differ[0]) if len(differ) else max(size, 0)
        if self._beams:  # they part after the prompt
            common = min(common, self._prompt)
        self._prompt = len(prompt)
        self._generator.rewind_to(common)
        self.reused += common
        return prompt[common:]
