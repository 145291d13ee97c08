"""``Generator``: sequences that a model continues."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_generate.cache import reserve
from tenonnx_generate.decoder import Decoder
from tenonnx_generate.encoder import TOKENS
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.model import Model
from tenonnx_generate.options import GeneratorParams
from tenonnx_generate.search import log_probabilities, search_of
from tenonnx_generate.source import Source
from tenonnx_generate.tensor import Tensor

if TYPE_CHECKING:
    from tenonnx_generate.adapters import Adapter, Adapters

NDArray = np.ndarray[Any, np.dtype[Any]]

# Tokens of a prompt that are run at once, unless `chunk_size` says otherwise.
DEFAULT_CHUNK_TOKENS = 1024


class Generator:
    """Continues one sequence, or a batch of them, token by token.

    Sequences of a batch have lengths of their own: what pads a prompt is no part of it.

    Args:
        model: The model.
        params: How tokens are chosen, and how many; what is changed of it later has no effect.

    Raises:
        RuntimeException: There is no room for caches of that length.
    """

    streams = True
    """Whether tokens stay as they come, instead of being those of the best text so far."""

    def __new__(cls, model: Model, params: GeneratorParams) -> Generator:  # noqa: ARG004 - as __init__
        """Return a generator of the kind that the options ask for."""
        options = params.get_search_options()
        if cls is Generator and params.drafts:
            from tenonnx_generate.drafted_generator import DraftedGenerator

            return super().__new__(DraftedGenerator)
        if cls is Generator and max(options["num_beams"], options["num_return_sequences"]) > 1:
            from tenonnx_generate.beam_generator import BeamGenerator

            return super().__new__(BeamGenerator)
        return super().__new__(cls)

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        options = params.get_search_options()
        if model.states and type(self) is not Generator:
            raise Unsupported(
                f"the states of {model.type} cannot go back: neither beams nor drafts have them",
                hint="one sequence for each prompt, without a draft model",
            )
        self._model = model
        self._about, self._limit = model.description, params.max_length
        self._batch = options["batch_size"]
        rows = self._batch * options["num_beams"]
        in_place = model.in_place or bool(options["past_present_share_buffer"])
        self._decoder = Decoder(model, rows, self._limit, in_place=in_place)
        self._searches = [search_of(params, row) for row in range(rows)]
        self._ends = params.ends
        self._chunk = options["chunk_size"] or DEFAULT_CHUNK_TOKENS
        self._tokens: NDArray = reserve((rows, self._limit), np.dtype(np.int32))
        self._counts = [0] * rows
        self._ended = [False] * rows
        self._next = np.full(rows, self._about.pad, np.int32)
        self._logits: NDArray | None = None
        self._prompts = [0] * rows
        """Tokens of each row when the latest prompt was there: guidance is for what follows."""
        self._chosen_by: dict[int, NDArray] = {}
        self._adapter: Adapter | None = None
        encoder = model.encoder
        self._source = None if encoder is None else Source(encoder, self._batch, self._about.pad)
        if model.vision is not None:
            from tenonnx_generate.image_source import ImageSource  # few models take images

            self._decoder.images = ImageSource(model.vision, model.image_token)

    def set_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Give the model its inputs, such as ``MultiModalProcessor`` makes them.

        Args:
            inputs: Arrays by name; ``input_ids`` are appended after all others are set.

        Raises:
            Refused: The model takes no such input, or one does not fit.
        """
        for name in inputs:
            if name != TOKENS:
                self.set_model_input(name, inputs[name])
        if TOKENS in inputs:
            self.append_tokens(inputs[TOKENS])

    def set_model_input(self, name: str, array: Any) -> None:
        """Give the model an input besides tokens, such as ``audio_features``.

        Those that it had before are forgotten with their sequences' caches; tokens stay.

        Raises:
            Refused: The model takes no such input, or it does not fit.
        """
        if (images := self._decoder.images) is not None:
            if self._batch > 1:
                raise Refused(f"images are of one sequence, and batch_size is {self._batch}")
            images.take(name, np.asarray(array))
            self._decoder.lengths[:] = [0] * len(self._counts)
        elif self._source is not None:
            self._source.take(name, np.asarray(array))
        else:
            raise Refused(f"the model takes no {name!r}", hint="append_tokens gives it tokens")
        self._logits = None

    def set_active_adapter(self, adapters: Adapters, adapter_name: str) -> None:
        """Have what is run from now on be run with an adapter; what was run stays as it is.

        Raises:
            Refused: There is no such adapter, or it is of another model.
        """
        if self._model.states and any(self._counts):
            raise Unsupported(
                f"the states of {self._model.type} cannot go back to another adapter",
                hint="set the adapter before append_tokens",
            )
        self._adapter = adapters.used_by(self, self._model, adapter_name, self._adapter)
        self._logits = None
        self._decoder.lengths = [
            min(had, max(count - 1, 0))
            for had, count in zip(self._decoder.lengths, self._counts, strict=True)
        ]

    def append_tokens(self, tokens: Any) -> None:
        """Append tokens to the sequences, and run the model on them.

        Args:
            tokens: Ids; of a batch, as many for each row, one row after the other or
                [rows, tokens], where what pads a row on the right is left out.

        Raises:
            Refused: There are none, too many, or some that the model has not; the sequences
                are as before.
        """
        added = self._parted(tokens)
        if self._source is not None and self._source.takes_text:
            if any(self._counts):
                raise Refused(
                    "the encoder has read its text already", hint="rewind_to(0) forgets it"
                )
            added = self._source.read(added)
        for row, part in enumerate(added):
            if self._counts[row] + len(part) > self._limit:
                raise Refused(
                    f"{len(part)} tokens after {self._counts[row]} are more than max_length, "
                    f"{self._limit}",
                    hint=f"the model's context has {self._about.context} tokens",
                )
        if self._decoder.images is not None:
            for row, part in enumerate(added):
                self._decoder.images.check(np.concatenate([self._sequence(row), part]))
        # All rows are checked before any is changed, and what was changed goes if the run fails.
        prompts = self._prompts.copy()
        for row, part in enumerate(added):
            end = self._counts[row] + len(part)
            self._tokens[row, self._counts[row] : end] = part
            self._counts[row], self._ended[row] = end, False
            self._guide(row, end)
        self._logits = None
        try:
            self._computed()
        except BaseException:
            for row, part in enumerate(added):
                self._shorten(row, self._counts[row] - len(part))
                self._guide(row, prompts[row])
            raise

    def generate_next_token(self) -> None:
        """Append a token to each sequence that has not ended; one that ends it is not appended.

        Raises:
            Refused: All of them have, or there is nothing to continue.
        """
        self._check_goes_on()
        logits = self._computed()
        self._chosen_by = {}
        for row in range(len(self._counts)):
            self._next[row] = self._about.pad
            if not self._stopped(row):
                token = self._choose(row, logits[row])
                self._next[row], self._chosen_by[row] = token, logits[row]
                self._ended[row] = token in self._ends
                if not self._ended[row]:
                    self._tokens[row, self._counts[row]] = token
                    self._counts[row] += 1
        self._logits = None

    def is_done(self) -> bool:
        """Return whether every sequence has ended, or is as long as it may be."""
        return all(map(self._stopped, range(len(self._counts))))

    def get_next_tokens(self) -> NDArray:
        """Return the tokens that came last, one for each row; pads for those that had ended."""
        return self._next.copy()

    def get_next_logprobs(self, top: int = 0) -> list[list[tuple[int, float]]]:
        """Return how likely the tokens that came last were to the model.

        Before temperature, penalties and guidance: what the model itself says.

        Args:
            top: How many of the likeliest tokens to tell of besides.

        Returns:
            For each row, the token with the logarithm of its probability, then the likeliest
            tokens with theirs; nothing for a row to which no token came.
        """
        found = []
        for row in range(len(self._counts)):
            logits = self._chosen_by.get(row)
            chosen = int(self._next[row])
            found.append([] if logits is None else log_probabilities(logits, chosen, top))
        return found

    def get_sequence(self, index: int) -> NDArray:
        """Return the tokens of a row so far.

        Raises:
            Refused: There is no such row.
        """
        if not 0 <= operator.index(index) < len(self._counts):
            raise Refused(f"there is no sequence {index}: there are {len(self._counts)}")
        return self._sequence(index).copy()

    def token_count(self) -> int:
        """Return how many tokens the longest sequence has."""
        return max(self._counts)

    def rewind_to(self, new_length: int) -> None:
        """Forget all but the first tokens of every sequence.

        Raises:
            Refused: One of them has not as many.
        """
        if not 0 <= operator.index(new_length) <= min(self._counts):
            raise Refused(f"{new_length} is no length to go back to from {min(self._counts)}")
        for row in range(len(self._counts)):
            self._shorten(row, new_length)
        self._logits = None

    def get_logits(self) -> NDArray:
        """Return the logits of what comes next, [rows, 1, vocabulary]."""
        return self._computed()[:, None].astype(np.float32)

    def set_logits(self, new_logits: Any) -> None:
        """Set the logits that the next token is chosen by.

        Raises:
            Refused: They are not [rows, vocabulary], or that with a 1 in the middle.
        """
        array = np.asarray(new_logits, np.float32)
        shape = (len(self._counts), self._about.vocabulary)
        if array.shape not in (shape, (shape[0], 1, shape[1])):
            raise Refused(f"logits are {list(array.shape)}; expected {list(shape)}")
        self._logits = array.reshape(shape)

    def get_speculative_stats(self) -> dict[str, Any]:
        """Return what was drafted and accepted so far: nothing, unless tokens are drafted."""
        from tenonnx_generate.speculation import Statistics

        return Statistics().report()

    def get_output(self, name: str) -> NDArray:
        """Return an output of the latest run of the graph; of ``logits``, the last position's.

        Prompts of a batch are run row by row, and in pieces of ``chunk_size``: the latest run is
        that of the last piece of the last row.

        Raises:
            Refused: There was no run, or the graph has no such output.
        """
        try:
            return self._decoder.output(name)
        except KeyError:
            raise Refused(f"there is no output {name!r} yet, or at all") from None

    def get_input(self, name: str) -> NDArray:
        """Return ids, mask or positions that the latest run of the graph was given.

        Raises:
            Refused: There was no run, or the graph has no such input.
        """
        try:
            return self._decoder.input(name)
        except KeyError:
            raise Refused(f"there is no input {name!r} yet, or at all") from None

    def _sequence(self, row: int) -> NDArray:
        return self._tokens[row, : self._counts[row]]

    def _stopped(self, row: int) -> bool:
        return self._ended[row] or self._counts[row] >= self._limit

    def _choose(self, row: int, logits: NDArray) -> int:
        """Return the token that follows a row's."""
        return self._searches[row].choose(logits, self._sequence(row))

    def _check_goes_on(self) -> None:
        if self.is_done():
            raise Refused(
                f"all sequences have ended, or have max_length tokens, {self._limit}",
                hint="ask is_done() before",
            )

    def _check_begun(self, counts: Iterable[int]) -> None:
        """Check that there are tokens to run, and that the encoder has run before them."""
        if 0 in counts:
            raise Refused("there is nothing to continue", hint="call append_tokens before")
        if self._source is not None:
            self._source.settle(self._decoder)

    def _shorten(self, row: int, length: int) -> None:
        """Forget what follows; the last token that is left is run again, for its logits."""
        self._counts[row], self._ended[row] = length, False
        if self._decoder.images is not None:
            self._decoder.images.place(self._sequence(row))
        self._guide(row, min(length, self._prompts[row]))
        self._decoder.lengths[row] = min(self._decoder.lengths[row], max(length - 1, 0))

    def _guide(self, row: int, prompt: int) -> None:
        """Have guidance begin after so many tokens, and take those that follow them."""
        self._prompts[row] = self._searches[row].begin = prompt
        if (guide := self._searches[row].guide) is not None:
            guide.restart(self._sequence(row)[prompt:].tolist())

    def _parted(self, tokens: Any) -> list[NDArray]:
        """Return the tokens of each row, checked."""
        array = np.asarray(tokens.as_numpy() if isinstance(tokens, Tensor) else tokens)
        rows = self._batch
        if not array.size or array.dtype.kind not in "iu" or array.ndim > 2:
            raise Refused(f"tokens are {array.dtype}{list(array.shape)}; expected whole numbers")
        if array.size % rows or (array.ndim == 2 and array.shape[0] != rows):
            raise Refused(f"tokens are {list(array.shape)}; expected as many for each of {rows}")
        if (outside := (array < 0) | (array >= self._about.vocabulary)).any():
            raise Refused(
                f"there is no token {array[outside][0]}: they are 0 to {self._about.vocabulary - 1}"
            )
        parts: list[NDArray] = list(array.reshape(rows, -1).astype(np.int32))
        return parts if rows == 1 else [self._unpadded(part) for part in parts]

    def _unpadded(self, part: NDArray) -> NDArray:
        kept = np.flatnonzero(part != self._about.pad)
        return part[: max(int(kept[-1]) + 1 if len(kept) else 0, 1)]

    def _computed(self) -> NDArray:
        """Return the logits [rows, vocabulary] that follow the sequences."""
        if self._logits is None:
            self._check_begun(self._counts)
            new = [c - had for c, had in zip(self._counts, self._decoder.lengths, strict=True)]
            if len(new) > 1 and self._decoder.in_place and max(new) <= 1:
                self._logits = self._all_rows()
            else:
                each = [self._one_row(row) for row in range(len(new))]
                self._logits = each[0] if len(each) == 1 else np.concatenate(each)
        return self._logits

    def _all_rows(self) -> NDArray:
        """Run a token of each row; the caches of those that have ended stay as they are."""
        last = self._tokens[np.arange(len(self._counts)), np.array(self._counts) - 1]
        before = self._decoder.lengths.copy()
        adapters = dict.fromkeys(range(len(before)), self._adapter)
        logits = self._decoder.run(0, last[:, None], adapters)
        for row in range(len(before)):
            if self._stopped(row):
                self._decoder.lengths[row] = before[row]
        return logits

    def _one_row(self, row: int) -> NDArray:
        """Run what is new of a row, in pieces."""
        had, end = self._decoder.lengths[row], self._counts[row]
        if self._ended[row] and len(self._counts) > 1:
            return np.zeros((1, self._about.vocabulary), np.float32)
        had = self._decoder.goes_on_from(row, min(had, end - 1))
        self._decoder.lengths[row] = had
        logits = np.zeros(0)
        for start in range(had, end, self._chunk):
            part = self._tokens[row : row + 1, start : min(start + self._chunk, end)]
            logits = self._decoder.run(row, part, {row: self._adapter})
        return logits
