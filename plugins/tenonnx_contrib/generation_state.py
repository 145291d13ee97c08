"""The models inside the search operators: their inputs at each step, and their caches.

Their inputs and outputs have fixed names, described with the operators BeamSearch, GreedySearch
and WhisperBeamSearch of com.microsoft. A *row* is one sequence that is being written: a batch
entry, or one of its beams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from tenonnx import Array, Body
from tenonnx_contrib.generation_scores import Rules


class Decoding(ABC):
    """A model that is asked for the next token, again and again."""

    @abstractmethod
    def start(self, beams: int) -> Array:
        """Read the prompt; return the logits ``[batch * beams, vocabulary]`` of what is next."""

    @abstractmethod
    def step(self, sequences: Array, order: Array) -> Array:
        """Return the logits that follow one more token per row.

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
        mask: The mask of tokens; all but ``pad`` if absent.
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
        """Run the prompt once per batch entry and repeat what comes out for every beam."""
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
        """Run one token per row on the caches of the rows they go on from."""
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
        ids: The encoder's input: tokens, or Whisper's features.
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
        """Encode once per batch entry and repeat what comes out for every beam."""
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
        """Run one token per row, or all of them, on the caches of the rows they go on from."""
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
    """Return the output that becomes an input of the next step: past_x is present_x."""
    return "present_" + name[5:] if name.startswith("past_") else name


def past_name(name: str) -> str:
    """Return the input that an output becomes in the next step."""
    return "past_" + name[8:] if name.startswith("present_") else name


def empty_cache(body: Body, index: int, rows: int) -> Array:
    """Return the cache of no tokens for an input of a graph.

    Raises:
        ValueError: The graph does not say how many heads there are, or of which size.
    """
    value = body.graph.inputs[index]
    dims = value.shape or ()
    if len(dims) not in (4, 5) or not (isinstance(dims[-3], int) and isinstance(dims[-1], int)):
        raise ValueError(
            f"expected '{value.name}' to have a shape with the number of heads and their size, "
            f"[..., batch, heads, length, size], found {value.shape}"
        )
    dtype = np.dtype(np.float32) if value.dtype is None else value.dtype
    pair = () if len(dims) == 4 else (2,)
    return np.empty((*pair, rows, dims[-3], 0, dims[-1]), dtype)


def reorder(array: Array, order: Array, axis: int = 0) -> Array:
    """Take rows in an order; the array itself where that is the order they are in."""
    same = len(order) == array.shape[axis] and np.array_equal(order, np.arange(len(order)))
    return array if same else np.take(array, order, axis=axis)


def opened(
    ids: Array,
    mask: Array | None,
    shortest: Array | None,
    repetition: Array | None,
    allowed: tuple[Array | None, Array | None],
    begin: Array | None = None,
    extra: Array | None = None,
    *,
    decoder: Body,
    eos_token_id: int,
    pad_token_id: int,
    encoder: Body | None = None,
    init_decoder: Body | None = None,
    decoder_start_token_id: int = -1,
    model_type: int = 0,  # noqa: ARG001 - the graphs show it
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
) -> tuple[Decoding, Array, Rules]:
    """Return a search operator's model before its first token, what sequences begin with, rules.

    Args:
        ids: The encoder's input, or the prompt.
        mask: Which of it counts.
        shortest: Sequences shorter than this do not end.
        repetition: The penalty for tokens that are there already.
        allowed: The tokens that may come, and that may come first.
        begin: What sequences begin with behind an encoder; else the start token.
        extra: What else they begin with.
        decoder: Runs at every step.
        eos_token_id: Ends a sequence.
        pad_token_id: Is behind its end.
        encoder: Runs once, ahead of all; ``None`` for a model like GPT-2.
        init_decoder: Takes the decoder's place for the prompt, if it is given.
        decoder_start_token_id: What sequences begin with unless something else is given.
        model_type: What onnxruntime takes the model for.
        no_repeat_ngram_size: No sequence of as many tokens comes twice; 0 for no such rule.
        vocab_size: How many tokens there are; as many as there are scores if not positive.

    Raises:
        ValueError: The model has an encoder, and nothing says how sequences begin.
    """
    if encoder is None:
        begin = ids.astype(np.int32)
    elif begin is not None:
        begin = begin.astype(np.int32)
    elif decoder_start_token_id < 0:
        raise ValueError("expected decoder_start_token_id or decoder_input_ids with an encoder")
    else:
        begin = np.full((len(ids), 1), decoder_start_token_id, np.int32)
    if extra is not None:
        begin = np.concatenate([begin, extra.astype(np.int32)], axis=1)
    rules = Rules(
        end=eos_token_id,
        pad=pad_token_id,
        vocabulary=vocab_size,
        shortest=int(number(shortest, 0)),
        repetition=float(number(repetition, 1.0)),
        ngram=no_repeat_ngram_size,
        allowed=allowed[0],
        allowed_first=allowed[1],
    )
    if encoder is None:
        return DecoderOnly(decoder, init_decoder, ids, mask, pad_token_id), begin, rules
    return EncoderDecoder(encoder, decoder, ids, mask, pad_token_id, begin), begin, rules


def number(value: Array | None, default: float) -> float:
    """Return a scalar that is given as a tensor of one element, if it is."""
    return default if value is None else np.asarray(value).reshape(-1)[0].item()
