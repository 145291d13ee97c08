"""The models inside the search operators: what they are fed at each step, and their caches.

Their inputs and outputs have fixed names, described with the operators BeamSearch, GreedySearch
and WhisperBeamSearch of com.microsoft. A *row* is one sequence that is being written: a batch
entry, or one of its beams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from tenonnx import Array, Body


class Decoding(ABC):
    """A model that is asked for the next token, again and again."""

    @abstractmethod
    def start(self, beams: int) -> Array:
        """Reads the prompt; returns the logits ``[batch * beams, vocabulary]`` of what is next."""

    @abstractmethod
    def step(self, sequences: Array, order: Array) -> Array:
        """Returns the logits that follow one more token per row.

        Args:
            sequences: ``[rows, length]``, the new tokens last.
            order: For each row, the row that it goes on from.
        """


class DecoderOnly(Decoding):
    """A model like GPT-2: ``input_ids``, ``position_ids``, ``attention_mask``, a ``past`` a layer.

    Args:
        decoder: Returns logits ``[rows, new, vocabulary]``, then one ``present`` a layer,
            ``[2, rows, heads, length, head size]``.
        first: Takes the decoder's place for the prompt.
        ids: The prompt, ``[batch, length]``.
        mask: Which of it counts; what is not ``pad`` when absent.
        pad: Id of the padding.
    """

    def __init__(
        self, decoder: Body, first: Body | None, ids: Array, mask: Array | None, pad: int
    ) -> None:
        self.decoder, self.first = decoder, first or decoder
        self.ids = ids.astype(np.int32)
        self.mask = (ids != pad if mask is None else mask != 0).astype(np.int32)
        self.caches: list[Array] = []
        known = {"input_ids", "position_ids", "attention_mask"}
        names = [value.name or "" for value in decoder.graph.inputs]
        if set(names[:3]) != known or not all(name.startswith("past_") for name in names[3:]):
            raise ValueError(
                "expected a decoder that takes input_ids, position_ids, attention_mask and "
                f"past_0, past_1, ..., found one that takes {', '.join(names)}"
            )

    def start(self, beams: int) -> Array:
        """Runs the prompt once per batch entry and repeats what comes out for every beam."""
        counted = np.cumsum(self.mask, axis=1, dtype=np.int32)
        positions = np.where(self.mask, counted - 1, 0).astype(np.int32)
        empty = [empty_cache(self.decoder, index, len(self.ids)) for index in self._layers()]
        logits, *caches = self.first(self.ids, positions, self.mask, *empty)
        self.caches = [np.repeat(cache, beams, axis=1) for cache in caches]
        self.mask = np.repeat(self.mask, beams, axis=0)
        self.positions = np.repeat(counted[:, -1:], beams, axis=0)
        return np.repeat(logits[:, -1], beams, axis=0)

    def _layers(self) -> range:
        return range(3, len(self.decoder.graph.inputs))

    def step(self, sequences: Array, order: Array) -> Array:
        """Runs one token per row on the caches of the rows they go on from."""
        self.caches = [reorder(cache, order, axis=1) for cache in self.caches]
        self.mask = np.pad(reorder(self.mask, order), ((0, 0), (0, 1)), constant_values=1)
        positions = reorder(self.positions, order)
        self.positions = positions + 1
        logits, *self.caches = self.decoder(
            np.ascontiguousarray(sequences[:, -1:]), positions, self.mask, *self.caches
        )
        return logits[:, -1]


class EncoderDecoder(Decoding):
    """A model like T5, BART or Whisper: an encoder that runs once, and a decoder.

    Args:
        encoder: Takes ``encoder_input_ids``, and ``encoder_attention_mask`` and
            ``decoder_input_ids`` if it names them. Returns the cache of the cross attention, and,
            if it starts the decoder as well, ``logits``, ``encoder_hidden_states`` and the cache of
            the self attention.
        decoder: Takes ``input_ids``, and of the others whichever it names.
        ids: What is encoded: tokens, or Whisper's features.
        mask: Which of it counts; all but ``pad`` on the left when absent.
        pad: Id of the padding.
        begin: The first tokens of every sequence, ``[batch, length]``.
    """

    def __init__(
        self, encoder: Body, decoder: Body, ids: Array, mask: Array | None, pad: int, begin: Array
    ) -> None:
        self.encoder, self.decoder = encoder, decoder
        if mask is None:
            mask = np.logical_or.accumulate(ids != pad, axis=1) if ids.ndim == 2 else None
        ids = ids if ids.dtype.kind == "f" else ids.astype(np.int32)
        self.values: dict[str, Array] = {"encoder_input_ids": ids, "decoder_input_ids": begin}
        if mask is not None:
            self.values["encoder_attention_mask"] = mask.astype(np.int32)
        # A decoder whose input has a symbolic length wants the whole sequence at every step.
        shape = decoder.graph.inputs[0].shape
        self.whole = shape is not None and shape[1] != 1
        self.growing = [v.name or "" for v in decoder.graph.outputs if v.name != "logits"]

    def start(self, beams: int) -> Array:
        """Encodes once per batch entry and repeats what comes out for every beam."""
        self.values |= self._call(self.encoder)
        for name, value in self.values.items():
            self.values[name] = np.repeat(value, beams, axis=0)
        if "logits" in self.values:
            return self.values["logits"][:, -1]
        rows = len(self.values["decoder_input_ids"])
        for index, value in enumerate(self.decoder.graph.inputs):
            if (value.name or "") in map(past_name, self.growing):
                self.values[present_name(value.name or "")] = empty_cache(self.decoder, index, rows)
        self.values["input_ids"] = self.values["decoder_input_ids"]
        self.values |= self._call(self.decoder)
        return self.values["logits"][:, -1]

    def step(self, sequences: Array, order: Array) -> Array:
        """Runs one token per row, or all of them, on the caches of the rows they go on from."""
        for name in self.growing:
            self.values[name] = reorder(self.values[name], order)
        ids = sequences if self.whole else sequences[:, -1:]
        self.values["input_ids"] = np.ascontiguousarray(ids)
        self.values |= self._call(self.decoder)
        return self.values["logits"][:, -1]

    def _call(self, body: Body) -> dict[str, Array]:
        inputs = []
        for value in body.graph.inputs:
            name = present_name(value.name or "")
            if name not in self.values:
                raise ValueError(
                    f"the graph {body.graph.name} takes '{value.name}', which nothing produces; "
                    f"there are {', '.join(sorted(self.values))}"
                )
            inputs.append(self.values[name])
        names = [value.name or "" for value in body.graph.outputs]
        return dict(zip(names, body(*inputs), strict=True))


def present_name(name: str) -> str:
    """Returns the output that becomes an input of the next step: past_x is present_x."""
    return "present_" + name[5:] if name.startswith("past_") else name


def past_name(name: str) -> str:
    """Returns the input that an output becomes in the next step."""
    return "past_" + name[8:] if name.startswith("present_") else name


def empty_cache(body: Body, index: int, rows: int) -> Array:
    """Returns the cache of no tokens for an input of a graph.

    Raises:
        ValueError: The graph does not say how many heads there are, or of which size.
    """
    value = body.graph.inputs[index]
    dims = list(value.shape) if value.shape is not None else []
    if len(dims) not in (4, 5) or not (isinstance(dims[-3], int) and isinstance(dims[-1], int)):
        raise ValueError(
            f"expected '{value.name}' to have a shape with the number of heads and their size, "
            f"[..., batch, heads, length, size], found {value.shape}"
        )
    dtype = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
    pair = () if len(dims) == 4 else (2,)
    return np.empty((*pair, rows, dims[-3], 0, dims[-1]), dtype)


def reorder(array: Array, order: Array, axis: int = 0) -> Array:
    """Takes rows in an order; the array itself where that is the order they are in."""
    same = len(order) == array.shape[axis] and np.array_equal(order, np.arange(len(order)))
    return array if same else np.take(array, order, axis=axis)


class Graphs(NamedTuple):
    """The graph attributes of a search operator.

    Attributes:
        decoder: Runs at every step.
        encoder: Runs once, ahead of all; ``None`` for a model like GPT-2.
        first: Takes the decoder's place for the prompt, if it is given.
    """

    decoder: Body
    encoder: Body | None
    first: Body | None

    def first_tokens(self, ids: Array, start: int, begin: Array | None = None) -> Array:
        """Returns what sequences begin with, ``[batch, length]``: the prompt, or start tokens.

        Args:
            ids: What is encoded, or the prompt.
            start: Id of the token that sequences begin with.
            begin: What they begin with instead.

        Raises:
            ValueError: The model has an encoder, and nothing says how sequences begin.
        """
        if self.encoder is None:
            return ids.astype(np.int32)
        if begin is not None:
            return begin.astype(np.int32)
        if start < 0:
            raise ValueError("expected decoder_start_token_id or decoder_input_ids with an encoder")
        return np.full((len(ids), 1), start, np.int32)

    def opened(self, ids: Array, mask: Array | None, pad: int, begin: Array) -> Decoding:
        """Returns the model that the graphs make, before its first token."""
        if self.encoder is None:
            return DecoderOnly(self.decoder, self.first, ids, mask, pad)
        return EncoderDecoder(self.encoder, self.decoder, ids, mask, pad, begin)


def number(value: Array | None, default: float) -> float:
    """Returns a scalar that is given as a tensor of one element, if it is."""
    return default if value is None else np.asarray(value).reshape(-1)[0].item()
