"""A sound's text, piece by piece, with what it took."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenonnx_generate import word_times
from tenonnx_generate.audio import Audios, Clip
from tenonnx_generate.encoder import AUDIO
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.generator import Generator
from tenonnx_generate.model import Model
from tenonnx_generate.options import GeneratorParams
from tenonnx_generate.processor import MultiModalProcessor
from tenonnx_generate.stops import StopStrings
from tenonnx_generate.word_times import Word
from tenonnx_generate.writing import Figures

NDArray = np.ndarray[Any, np.dtype[Any]]

# Whisper's tokens: what begins every prompt, what asks for the language spoken, and for text
# without times.
START, TRANSCRIBE, PLAIN = "<|startoftranscript|>", "<|transcribe|>", "<|notimestamps|>"

# Begins a text that was said before.
BEFORE = "<|startofprev|>"

LANGUAGE = re.compile(r"<\|[a-z]{2,3}\|>")
MOST_LANGUAGES = 256

# Tokens that are run at once for the times of words: scores of all heads for 1500 places each are
# 120 MB in the largest Whisper.
ALIGNED_TOKENS = 32


class Transcriber(Figures):
    """A model that transcribes sounds.

    Sounds that are longer than the model takes at once are cut, and each piece is transcribed by
    itself; a word at a cut may be lost.

    Args:
        model: The model.
        search: Search options.
        stops: Strings that a piece's text ends before.
        prompt: What every text begins with, special tokens included; without, the model's tokens
            for a transcript without times.
        language: Such as ``en``; without, the one that is likeliest for the first piece.
        before: A text that may have been said before, of which the end counts.
        processor: The model's, if it is there already.

    Raises:
        Unsupported: The model takes no sounds.
        Refused: The language is none of the model's, or it has not these tokens and there is no
            prompt.
    """

    def __init__(
        self,
        model: Model,
        search: Mapping[str, Any],
        stops: Sequence[str] = (),
        prompt: str = "",
        language: str = "",
        before: str = "",
        processor: MultiModalProcessor | None = None,
    ) -> None:
        super().__init__()
        self._processor: MultiModalProcessor = processor or model.create_multimodal_processor()
        self._tokenizer = self._processor.tokenizer
        params = GeneratorParams(model)
        params.set_search_options(**search)
        self._stops = tuple(stops)
        StopStrings(self._stops)
        self._model, self._generator = model, Generator(model, params)
        self._begins, self._limit = 0, params.max_length
        # A piece of a text that is read again is one run.
        chunk = params.get_search_options()["chunk_size"]
        self._aligned = min(chunk or ALIGNED_TOKENS, ALIGNED_TOKENS)
        self._prompt = self._tokenizer.encode(prompt, add_special_tokens=False) if prompt else None
        if self._prompt is None:
            self._begin = self._token(START)
            self._languages = self._listed_languages()
        elif language:
            raise Refused("--prompt says the language, too", hint="give one of them")
        if language and self._token(f"<|{language}|>") not in self._languages:
            raise Refused(f"{language!r} is no language of the model's")
        self._language = self._token(f"<|{language}|>") if language else None
        self._before: list[int] = []
        if before:
            said = self._tokenizer.encode(" " + before.strip(), add_special_tokens=False)
            kept = params.max_length // 2 - 1
            self._before = [self._token(BEFORE), *said[max(len(said) - kept, 0) :].tolist()]

    def continued(self, path: str | os.PathLike[str], most: int) -> Iterator[str]:
        """Yield the text of a sound, as it comes.

        Args:
            path: A file.
            most: Tokens of each piece's text at most.
        """
        (clip,) = Audios.open(path)
        for number in range(self.count(clip)):
            yield from self.piece(clip, number, most)

    def count(self, clip: Clip) -> int:
        """Return how many pieces a sound has."""
        return -(-clip.frames // (self.seconds * clip.rate))

    def piece(self, clip: Clip, number: int, most: int) -> Iterator[str]:
        """Yield the text of a piece of a sound, as it comes."""
        start = time.perf_counter()
        self._generator.rewind_to(0)
        self._generator.set_model_input(AUDIO, self._processor.piece(clip, number))
        prompt = self._begun() if self._prompt is None else self._prompt
        self._begins = len(prompt)
        self._generator.rewind_to(0)
        self._generator.append_tokens(prompt)
        self.read += len(prompt)
        return self.generated(self._generator, self._tokenizer, self._stops, most, start)

    def words(self, clip: Clip, number: int) -> list[Word]:
        """Return the words of the latest piece with their times in the sound.

        The decoder reads the text once more, for what it attends to at each token.

        Args:
            clip: The sound.
            number: The piece.

        Raises:
            Unsupported: The decoder does not return the scores of its cross attention.
        """
        tokens = self._generator.get_sequence(0)
        text = tokens[self._begins :].tolist()
        if not text:
            return []
        scores = self._cross_scores(tokens)
        second = self.seconds / scores.shape[-1]
        start = number * self.seconds
        heard = min(clip.seconds - start, self.seconds)
        scores = scores[..., : max(round(heard / second), 1)]
        places = word_times.token_places(scores, self._begins, len(text))
        words = word_times.words_of(text, self._tokenizer.decode, self.language)
        return [
            replace(word, start=word.start + start, end=word.end + start)
            for word in word_times.timed(words, places, second)
        ]

    def check_words(self) -> None:
        """Check that words have times.

        Raises:
            Unsupported: The decoder does not return the scores of its cross attention.
        """
        names = self._cross_names()
        if any(name not in self._model.outputs for name in names.values()):
            raise Unsupported(
                f"times of words are found in {next(iter(names.values()))!r}, and the decoder has "
                f"no such output",
                hint="export the decoder with the scores of its cross attention",
            )

    def _cross_names(self) -> dict[int, str]:
        """Return the output of each layer that has heads which follow the sound."""
        name = self._model.description.outputs["output_cross_qk_names"]
        return {layer: name.replace("%d", str(layer)) for layer, _ in self._heads()}

    def _heads(self) -> list[tuple[int, int]]:
        about = self._model.description
        return word_times.alignment_heads(about.folder, about.layers, about.key_heads)

    def _cross_scores(self, tokens: NDArray) -> NDArray:
        """Return the scores [heads, tokens, places] of a text and the token that ends it."""
        self.check_words()
        about = self._model.description
        whole = np.append(tokens, about.eos[:1]).astype(np.int32)[: self._limit]
        self._generator.rewind_to(0)
        found = []
        for start in range(0, len(whole), self._aligned):
            self._generator.append_tokens(whole[start : start + self._aligned])
            layers = {
                layer: self._generator.get_output(name)[0]
                for layer, name in self._cross_names().items()
            }
            found.append(np.stack([layers[layer][head] for layer, head in self._heads()]))
        return np.concatenate(found, axis=1).astype(np.float32)

    @property
    def seconds(self) -> int:
        """The length of a piece."""
        return self._processor.mel.seconds

    @property
    def language(self) -> str:
        """The language of the text, once it is known."""
        token = self._language
        return "" if token is None else self._tokenizer.written(token).strip("<|>")

    def _begun(self) -> NDArray:
        """Return the tokens that ask for a transcript, in the language that is spoken."""
        if not self._languages:  # a model of one language has no tokens for that
            return np.array([*self._before, self._begin, self._token(PLAIN)], np.int32)
        if self._language is None:
            self._generator.append_tokens([self._begin])
            logits = self._generator.get_logits()[0, 0]
            self._language = max(self._languages, key=lambda token: logits[token])
        tokens = [self._begin, self._language, self._token(TRANSCRIBE), self._token(PLAIN)]
        return np.array([*self._before, *tokens], np.int32)

    def _token(self, text: str) -> int:
        found: int = self._tokenizer.to_token_id(text)
        if found < 0:
            raise Refused(
                f"the model has no token {text}",
                hint="--prompt says what every text begins with",
            )
        return found

    def _listed_languages(self) -> list[int]:
        """Return the tokens of languages, which follow the one that begins."""
        first = self._begin + 1
        found = []
        for token in range(first, first + MOST_LANGUAGES):
            if not LANGUAGE.fullmatch(self._tokenizer.written(token)):
                break
            found.append(token)
        return found
