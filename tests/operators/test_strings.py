"""RE2's regular expressions: what must match, must not, and must be refused; in linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tenonnx_array import re2
from tenonnx_array.re2 import _compile_google, _Scan, compile_fullmatch, compile_search


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
        (r"(a|b+)[^-]\.", ["ax.", "bbb\n."], ["a-.", "abx."]),
        ("", [""], ["a"]),
    ],
)
def test_pattern(pattern: str, matches: list[str], others: list[str]) -> None:
    match = compile_fullmatch(pattern)
    assert [s for s in matches + others if match(s)] == matches


@pytest.mark.parametrize(
    "pattern",
    [
        *["(?=a)", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#x)", "(?P=n)", r"(a)\1"],
        *["a++", "a**", "*a", "a|*", "(a", "a)", "[a", "[", "[b-a]", r"[a-\d]", "a{2,1}"],
        *["[[:vowel:]]", r"\Z", r"\8", r"\h", "\\", r"\x4", "(?", "(?z)", r"\p{Klingon}"],
        *["a{1001}", "(a{100}){100}", "(?:(a{10}){10}){11}"],
    ],
)
def test_refused(pattern: str) -> None:
    for compile_it in (compile_fullmatch, compile_search):
        with pytest.raises(ValueError, match="expected RE2's syntax"):
            compile_it(pattern)


@pytest.mark.parametrize(
    ("pattern", "whole", "searched"),
    [
        ("[a-zA-Z0-9_]+", True, True),
        ("abc|d{2,3}|[^x]*?y?", True, False),
        ("l+|o", True, True),
        (r"www\.[\w.-]+\.\bcom\b", True, False),
        (r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)", True, True),
        ("a*", True, False),
        ("a*b*", False, False),
        (r"[^\s,]+\S\s", True, False),
        ("(a|b)*", False, False),
        ("(a|b)(a|b)" * 5, False, False),
        (r"\Ba", False, False),
    ],
)
def test_without_google_re2(
    pattern: str, whole: bool, searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(re2, "google_re2", lambda: None)
    for compile_it, taken in ((compile_fullmatch, whole), (compile_search, searched)):
        compile_it.cache_clear()
        if taken:
            compile_it(pattern)
        else:
            with pytest.raises(ValueError, match=r"google-re2.*tenonnx\[re2\]"):
                compile_it(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*b", "(a|aa)+c", "(.*)(.*)(.*)(.*)(.*)x", "(a*)*b", "a*a*a*a*b", "a+b"],
)
def test_time_is_linear(pattern: str) -> None:
    start = time.perf_counter()
    match = compile_fullmatch(pattern)
    assert not match("a" * 20_000 + "!")
    assert match("a" * 20_000 + pattern.rstrip("$")[-1]) == (pattern[-1] in "bcx")
    assert len(compile_search(pattern).spans("a" * 20_000 + "!")) <= 1
    assert time.perf_counter() - start < 5


ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        r"\w",
        r"\W",
        r"[^\Wb]",
        r"\s",
        r"\S",
        r"[^\s1]",
        "é",
        r"\.",
        "1",
    ]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?"])
PATTERNS = st.recursive(
    st.one_of(
        st.tuples(ATOMS, REPEATS).map("".join), st.sampled_from([r"\b", "^", "$", r"\A", r"\z"])
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
    ),
    max_leaves=6,
)
TEXTS = st.text("abAB. \n\vé1", max_size=8)


@settings(max_examples=300, deadline=None)
@given(PATTERNS, TEXTS)
def test_both_find_the_same(pattern: str, text: str) -> None:
    google = pytest.importorskip("re2") and _compile_google(pattern)
    whole, searched = _Scan(False).accepts(pattern), _Scan(True).accepts(pattern)
    assume(whole or searched)
    if whole:
        assert compile_fullmatch(pattern)(text) == (google.fullmatch(text) is not None)
    if searched:
        ours, theirs = compile_search(pattern), re2.Search(google)
        assert ours.spans(text) == theirs.spans(text)
        assert ours.found(text) == theirs.found(text)
        assert "".join(ours.between(text)) == "".join(theirs.between(text))
