"""Many small weights lie together, and are the ones that each alone would be."""

from __future__ import annotations

import gc
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tenonnx.weights.constants import MAX_JOINED_BYTES, constants
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.storage import SMALL_WEIGHT_ALIGNMENT, UINT8

FLOAT = 1


@given(contents=st.lists(st.binary(min_size=1, max_size=40), max_size=20), one_first=st.booleans())
def test_each_is_the_one_that_it_would_be_alone(contents: list[bytes], one_first: bool) -> None:
    registry = WeightRegistry()
    first = [registry.constant(c, UINT8, (len(c),)) for c in contents] if one_first else []
    many = constants(registry, [(content, UINT8, (len(content),)) for content in contents])
    alone = first or [registry.constant(c, UINT8, (len(c),)) for c in contents]
    assert [id(weight) for weight in many] == [id(weight) for weight in alone]
    assert [weight.array.tobytes() for weight in many] == contents


def test_content_of_two_types_lies_there_once() -> None:
    content = np.arange(4, dtype=np.float32).tobytes()
    a, b = constants(WeightRegistry(), [(content, FLOAT, (4,)), (content, UINT8, (16,))])
    assert a is not b
    assert (a.storage, a.offset) == (b.storage, b.offset)


def test_pieces_are_short_and_words_aligned() -> None:
    count = 3 * MAX_JOINED_BYTES // SMALL_WEIGHT_ALIGNMENT
    given_ = [(b"%08d" % number, UINT8, (8,)) for number in range(count)]
    registry = WeightRegistry()
    found = constants(registry, given_)
    assert len({id(weight.storage) for weight in found}) == 3
    assert max(weight.storage.size for weight in found) == MAX_JOINED_BYTES
    assert {
        (weight.storage.address + weight.offset) % SMALL_WEIGHT_ALIGNMENT for weight in found
    } == {0}
    places = [(weight.storage.address, weight.offset) for weight in found]
    assert all(one < other for one, other in itertools.pairwise(sorted(places)))
    del found
    gc.collect()
    assert registry.report().private == 0
