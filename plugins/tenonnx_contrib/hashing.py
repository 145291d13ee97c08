"""Hashes of tensors and of runs of tokens: MurmurHash3, NGramHashMapping."""

from __future__ import annotations

import numpy as np

from tenonnx import Array, Namespace, OperatorTable

table = OperatorTable("com.microsoft")
op = table.op


def rotated(x: Array, bits: int) -> Array:
    """Rotate 32-bit integers to the left."""
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def mixed(block: Array) -> Array:
    """Return the number by which a block of four bytes changes a state."""
    return rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def murmur3(blocks: Array, lengths: Array, seed: int) -> Array:
    """Return MurmurHash3_x86_32 (Appleby 2011) of keys, all at once a block at a time.

    Args:
        blocks: The keys one behind the other, each filled up with zeros to whole blocks; uint32.
        lengths: Their bytes, ``[keys]`` of uint32.
        seed: 32 bits.
    """
    # The longest first: those that have a block are the first ones.
    order = np.argsort(lengths)[::-1]
    whole, counts = lengths[order] // 4, (lengths + 3) // 4
    starts = (np.cumsum(counts) - counts)[order]
    state = np.full(len(lengths), seed & 0xFFFFFFFF, np.uint32)
    for place in range(whole.max(initial=0)):
        going = state[: np.count_nonzero(whole > place)]
        found = mixed(blocks[starts[: len(going)] + place])
        going[:] = rotated(going ^ found, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    rest = np.flatnonzero(lengths[order] % 4)
    state[rest] ^= mixed(blocks[starts[rest] + whole[rest]])
    state ^= lengths[order]
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
    hashes = np.empty_like(state)
    hashes[order] = state ^ (state >> np.uint32(16))
    return hashes


@op("MurmurHash3", host="all")
def murmur_hash3(_: Namespace, x: Array, *, seed: int = 0, positive: int = 1) -> Array:
    """Hash every element by itself: a number's bytes, a string's UTF-8."""
    if x.dtype == object:
        keys = [text.encode() for text in x.ravel().tolist()]
        lengths = np.array([len(key) for key in keys], np.uint32)
        joined = b"".join([key + bytes(-len(key) % 4) for key in keys])
        blocks = np.frombuffer(joined, "<u4")
    else:
        lengths = np.full(x.size, x.itemsize, np.uint32)
        blocks = np.ascontiguousarray(x).reshape(-1).view("<u4")
    hashes = murmur3(blocks, lengths, seed)
    return hashes.reshape(x.shape).view(np.uint32 if positive else np.int32)


@op(
    "NGramHashMapping",
    host=(5,),
    multiple=True,
    shapes=(
        "input_ids: B L; segment_ids: B L; multipliers: n; n >= max_ngram_size; "
        "vocab_sizes head_offsets: (max_ngram_size-1)*n_head_per_ngram; "
        "past_ids: B max_ngram_size-1; eos_token_id:"
    ),
)
def ngram_hash_mapping(
    xp: Namespace,
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[Array, ...]:
    """Return VarlenNGramHashMapping of rows of one length (batch, length)."""
    batch, length = input_ids.shape
    hashes, present, *_ = varlen_ngram_hash_mapping(
        xp,
        input_ids.reshape(-1),
        multipliers,
        vocab_sizes,
        xp.arange(batch + 1) * length,
        past_ids,
        head_offsets,
        eos_token_id,
        None if segment_ids is None else segment_ids.reshape(-1),
        max_ngram_size=max_ngram_size,
        n_head_per_ngram=n_head_per_ngram,
        pad_id=pad_id,
        reset_on_eos=reset_on_eos,
    )
    return hashes.reshape(batch, length, hashes.shape[1]), present


@op(
    "VarlenNGramHashMapping",
    host=(6,),
    multiple=True,
    shapes=(
        "multipliers: n; n >= max_ngram_size; eos_token_id:; "
        "vocab_sizes head_offsets: (max_ngram_size-1)*n_head_per_ngram; "
        "past_ids past_segment_ids: B max_ngram_size-1; capture_count: B; "
        "cumulative_sequence_length: ends; B = ends - 1"
    ),
)
def varlen_ngram_hash_mapping(
    xp: Namespace,
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    cumulative_sequence_length: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    past_segment_ids: Array | None = None,
    capture_count: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
) -> tuple[Array, ...]:
    """Hash every run of 2 to ``max_ngram_size`` tokens, by the sum modulo 2 of their products.

    Requests lie one behind the other, as ``cumulative_sequence_length`` says; the histories
    ``past_ids`` and ``past_segment_ids`` are (batch, max_ngram_size - 1). Reads beyond the history,
    a segment or an end-of-sequence token give the padding.

    Raises:
        ValueError: A request has no token.

    Returns:
        The hashes (tokens, heads), the histories for the next call, and the histories after each
        of a request's first ``capture_count`` tokens, (batch, capacity, max_ngram_size - 1).
    """
    before = max_ngram_size - 1
    requests = Requests(xp, cumulative_sequence_length, before)
    if xp is np and np.any(requests.lengths < 1):  # a device would have to be waited for
        ends = cumulative_sequence_length.tolist()
        raise ValueError(f"expected cumulative_sequence_length to go up, found {ends}")
    padding = input_ids.dtype.type(pad_id if eos_token_id is None else eos_token_id.item())
    tokens = requests.behind(padding if past_ids is None else past_ids, input_ids)
    resets, segments = [], None
    if eos_token_id is not None and reset_on_eos:
        resets.append(xp.flatnonzero(tokens == padding) + 1)
    if segment_ids is not None:
        past = past_segment_ids
        if past is None:
            past = segment_ids[cumulative_sequence_length[:-1], None]
        segments = requests.behind(past, segment_ids)
        resets.append(xp.flatnonzero(xp.diff(segments)) + 1)
    first, places = requests.first(resets), requests.places
    mixed = input_ids * multipliers[0]
    hashes = []
    for back in range(1, max_ngram_size):
        seen = xp.where(places - back >= first, tokens[places - back], padding)
        mixed = mixed ^ (seen * multipliers[back])
        heads = slice((back - 1) * n_head_per_ngram, back * n_head_per_ngram)
        found = mixed[:, None] % vocab_sizes[heads]
        hashes.append(found if head_offsets is None else found + head_offsets[heads])
    last = requests.ends[:, None] + xp.arange(before)
    updates = xp.full((len(last), state_update_capacity, before), pad_id, tokens.dtype)
    if capture_count is not None:
        steps = xp.arange(state_update_capacity)
        captured = steps < xp.minimum(capture_count, requests.lengths)[:, None]
        after = xp.where(captured, requests.starts[:, None] + steps + 1, 0)[..., None]
        updates = xp.where(captured[..., None], tokens[after + xp.arange(before)], updates)
    kept = None if segments is None else segments[last]
    return xp.concatenate(hashes, axis=1), tokens[last], kept, updates


class Requests:
    """The places of requests one behind the other, each behind ``before`` tokens of history.

    Attributes:
        lengths: Their tokens, ``[batch]``.
        starts: Where their histories begin, ``[batch]``.
        ends: Where the histories for the next call begin, ``[batch]``.
        places: Where each token is, ``[tokens]``.
    """

    def __init__(self, xp: Namespace, cumulative: Array, before: int) -> None:
        self.xp, self.before = xp, before
        self.lengths = xp.diff(cumulative)
        batch = xp.arange(len(self.lengths))
        self.starts = cumulative[:-1] + batch * before
        self.ends = self.starts + self.lengths
        self.owner = xp.repeat(batch, self.lengths)
        self.places = xp.arange(len(self.owner)) + (self.owner + 1) * before

    def behind(self, history: Array, own: Array) -> Array:
        """Return every request's history, which broadcasts to [batch, before], and its own."""
        together = self.xp.empty(len(own) + len(self.starts) * self.before, own.dtype)
        together[self.places] = own
        together[self.starts[:, None] + self.xp.arange(self.before)] = history
        return together

    def first(self, resets: list[Array]) -> Array:
        """Return where what a token may look back on begins, at the latest of the resets."""
        xp = self.xp
        begins = xp.sort(xp.concatenate((self.starts, *resets)))
        return begins[xp.searchsorted(begins, self.places, side="right") - 1]
