"""RE2's syntax through Python's re: what must match, must not, and must be refused."""

from __future__ import annotations

import pytest

from tenonnx_array.re2 import compile_re2


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
def test_pattern(pattern: str, matches: list[str], others: list[str]) -> None:
    match = compile_re2(pattern).fullmatch
    assert [s for s in matches + others if match(s)] == matches


@pytest.mark.parametrize(
    "pattern",
    [
        *["(?=a)", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?>a)", "(?#x)", "(?P=n)", r"(a)\1", "(?U)a*"],
        *["a++", "a**", "a{2}{3}", "*a", "a|*", "(a", "a)", "[a", "[", "[b-a]", r"[a-\d]"],
        *["[[:vowel:]]", r"\Z", r"\8", r"\h", r"\C", "\\", r"\p{Klingon}", r"\x4", "(?", "(?z)"],
    ],
)
def test_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected RE2's syntax"):
        compile_re2(pattern)
