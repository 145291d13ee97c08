"""RE2's regular expressions: what must match, must not, and must be refused; in linear time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenonnx_array.re2 import compile_google, compile_own, compile_re2, google_re2

ENGINES = {"own": compile_own, "google-re2": compile_google}


@pytest.fixture(params=ENGINES)
def compiled(request: pytest.FixtureRequest) -> Any:
    if request.param == "google-re2" and google_re2() is None:
        pytest.skip("google-re2 is not installed")
    return ENGINES[request.param]


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        (r"\w+\d\s", ["a1 ", "_9\f"], ["é1 ", "a٣ ", "a1\v"]),
        (r"\W\D\S", ["éé\v", "-x-"], ["a--", "-1-", "-- "]),
        (r"[^\W\d]+", ["ab_"], ["a1", "é", ""]),
        (r"[^\W]{2}", ["a1"], ["a", "a-"]),
        (r"\bab\B.*", ["abc"], ["ab", "ab c"]),
        (r"[[:alpha:]\-]+", ["a-Z"], ["1", "é"]),
        (r"[[:^digit:]1]+", ["a1é"], ["2"]),
        (r"[]a-]+", ["]-a"], ["b"]),
        (r"[^]a]", ["b"], ["]", "a"]),
        (r"[a-c&&b]+", ["a&b"], ["d"]),
        (r"[\d-z]+", ["1-z"], ["y"]),
        (r"a(?i)b|c", ["ab", "aB", "C"], ["AB", "Ab"]),
        (r"(a(?i)b)c", ["aBc"], ["aBC"]),
        (r"(?i:é)É", ["ÉÉ"], ["éé"]),
        (r"(?i)a(?-i:b)", ["Ab"], ["AB"]),
        (r"\Qa.b*\E+", ["a.b**"], ["axb", "a.b"]),
        (r"\Q[x", ["[x"], ["x"]),
        (r"\x{1F600}\x41\101\0", ["😀AA\0"], ["😀AA"]),
        (r"\pL\p{Lu}\P{L}\p{^N}", ["éÉ1-", "aB-b"], ["éé1-", "aB11"]),
        (r"[\p{N}x]+\p{Any}", ["٣x!"], ["y!"]),
        (r"a{,2}", ["a{,2}"], ["aa"]),
        (r"a{1,2}?", ["a", "aa"], ["aaa"]),
        (r"a$\n", [], ["a\n"]),
        (r"(?m)a$\nb", ["a\nb"], ["a"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"a.b", ["axb"], ["a\nb"]),
        (r"(?s)a.b", ["a\nb"], []),
        (r"(?P<x>a)(?<y>b)(?:c)", ["abc"], ["ab"]),
        ("", [""], ["a"]),
    ],
)
def test_pattern(compiled: Any, pattern: str, matches: list[str], others: list[str]) -> None:
    match = compiled(pattern).fullmatch
    assert [s for s in matches + others if match(s)] == matches


@pytest.mark.parametrize(
    "pattern",
    [
        *["(?=a)", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#x)", "(?P=n)", r"(a)\1"],
        *["a++", "a**", "*a", "a|*", "(a", "a)", "[a", "[", "[b-a]", r"[a-\d]"],
        *["[[:vowel:]]", r"\Z", r"\8", r"\h", "\\", r"\x4", "(?", "(?z)"],
        *["a{1001}", "(a{100}){100}", "(?:(a{10}){10}){11}"],
    ],
)
def test_refused(compiled: Any, pattern: str) -> None:
    with pytest.raises(ValueError, match="expected RE2's syntax"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(?U)a*", r"\C", r"\p{Klingon}", "(a{500}b){2}" * 30])
def test_refused_without_google_re2(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected RE2's syntax"):
        compile_own(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(a|aa)+c", "(.*)(.*)(.*)(.*)(.*)x", "(a*)*b", "a*a*a*a*b"]
)
def test_time_is_linear(compiled: Any, pattern: str) -> None:
    start = time.perf_counter()
    own = compiled(pattern)
    assert not own.fullmatch("a" * 20_000 + "!")
    assert own.fullmatch("a" * 20_000 + pattern.rstrip("$")[-1]) == (pattern[-1] in "bcx")
    assert time.perf_counter() - start < 5


ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\W",
        r"[^\Wb]",
        r"\b",
        r"\B",
        "^",
        "$",
        "(?i:B)",
        "é",
    ]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?"])
        ).map(lambda two: f"(?:{two[0]}){two[1]}"),
    ),
    max_leaves=6,
)
TEXTS = st.text("abAB \né1", max_size=8)


@settings(max_examples=200, deadline=None)
@given(PATTERNS, TEXTS)
def test_both_find_the_same(pattern: str, text: str) -> None:
    own = compile_own(pattern)
    if r"\B" in pattern:  # of which google-re2 finds some between the bytes of a character
        text = text.replace("é", "e")
    if google_re2() is not None:
        other = compile_google(pattern)
        assert own.fullmatch(text) == other.fullmatch(text)
        assert list(own.spans(text)) == list(other.spans(text))
        assert own.found(text) == other.found(text)
        assert own.between(text) == other.between(text)


def test_a_pattern_is_left_to_re_only_if_google_takes_it() -> None:
    assert compile_re2("[a-z]+").found("ab c") == ["ab", "c"]
    with pytest.raises(ValueError, match="expected RE2's syntax"):
        compile_re2("[a-z]++")
