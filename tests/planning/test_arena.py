"""Arrays that are not needed at one time lie in one place of an arena."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tenonnx.planning.arena import Lifetime, pack

ALIGNED = 256

LIFETIMES = st.lists(
    st.tuples(st.integers(1, 3000), st.integers(0, 9), st.integers(0, 9)).map(
        lambda drawn: Lifetime(drawn[0], *sorted(drawn[1:]))
    ),
    max_size=30,
)


@given(LIFETIMES)
def test_what_is_needed_at_one_time_is_apart(lifetimes: list[Lifetime]) -> None:
    offsets, nbytes = pack(lifetimes, ALIGNED)
    places = [(at, at + each.nbytes) for at, each in zip(offsets, lifetimes, strict=True)]
    assert all(at % ALIGNED == 0 and end <= nbytes for at, end in places)
    for (i, one), (j, other) in itertools.combinations(enumerate(lifetimes), 2):
        if one.first <= other.last and other.first <= one.last:
            assert places[i][1] <= places[j][0] or places[j][1] <= places[i][0]


def test_what_is_needed_at_different_times_is_in_one_place() -> None:
    chain = [Lifetime(1000, n, n + 1) for n in range(10)]
    assert pack(chain, ALIGNED)[1] == 2 * 1024
