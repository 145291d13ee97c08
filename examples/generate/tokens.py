"""A byte-level tokenizer of pairs merged in the order of their frequency (byte-pair encoding)."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

WORDS = re.compile(rb" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+")
"""The pieces of text that no merge crosses."""

Pair = tuple[int, int]


class Tokenizer:
    """Bytes are tokens 0 to 255, merges follow in their order, the end of a text is the last.

    Args:
        merges: Pairs of tokens, each of which became a token.
    """

    def __init__(self, merges: Iterable[Pair]) -> None:
        self.merges = [(int(left), int(right)) for left, right in merges]
        self.end = 256 + len(self.merges)
        self.size = self.end + 1
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}
        self._bytes = [bytes([byte]) for byte in range(256)]
        for left, right in self.merges:
            self._bytes.append(self._bytes[left] + self._bytes[right])
        self._bytes.append(b"")
        self._of_word = lru_cache(1 << 16)(self._merged)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read what ``save`` wrote."""
        return cls(json.loads(path.read_text())["merges"])

    def save(self, path: Path) -> None:
        """Write the merges as JSON."""
        path.write_text(json.dumps({"merges": self.merges}, separators=(",", ":")) + "\n")

    def encode(self, text: str) -> list[int]:
        """Return a text's tokens."""
        return [token for word in WORDS.findall(text.encode()) for token in self._of_word(word)]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens."""
        return "".join(self.stream(tokens))

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """Yield the text of each token as it comes; bytes wait until they make a character."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token in tokens:
            yield decoder.decode(self._bytes[token])
        yield decoder.decode(b"", final=True)

    def _merged(self, word: bytes) -> tuple[int, ...]:
        tokens = list(word)
        while len(tokens) > 1:
            first = min(pairwise(tokens), key=lambda pair: self._rank.get(pair, len(self._rank)))
            if first not in self._rank:
                break
            tokens = replaced(tokens, first, 256 + self._rank[first])
        return tuple(tokens)


def replaced(tokens: list[int], pair: Pair, token: int) -> list[int]:
    """Return tokens with every occurrence of a pair, from the left, become one token."""
    out: list[int] = []
    for item in tokens:
        if out and (out[-1], item) == pair:
            out[-1] = token
        else:
            out.append(item)
    return out


def learn(text: str, size: int) -> Tokenizer:
    """Return the tokenizer of ``size`` tokens that a text's most frequent pairs make."""
    counts = Counter(WORDS.findall(text.encode()))
    words = [list(word) for word in counts]
    times = list(counts.values())
    found: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = defaultdict(set)
    for place, word in enumerate(words):
        for pair in pairwise(word):
            found[pair] += times[place]
            places[pair].add(place)
    merges: list[Pair] = []
    while 257 + len(merges) < size:
        best = max(found, key=lambda pair: (found[pair], pair))
        for place in places.pop(best):
            for pair in pairwise(words[place]):
                found[pair] -= times[place]
            words[place] = replaced(words[place], best, 256 + len(merges))
            for pair in pairwise(words[place]):
                found[pair] += times[place]
                places[pair].add(place)
        del found[best]
        merges.append(best)
    return Tokenizer(merges)


class Foreign:
    """A Hugging Face ``tokenizer.json``, read by the ``tokenizers`` package.

    Args:
        folder: Where it is; the end of a text is what the configurations beside it say.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as Reader

        self._reader: Any = Reader.from_file(str(folder / "tokenizer.json"))
        self.end = -1
        for name in ("generation_config.json", "config.json"):
            if self.end < 0 and (folder / name).is_file():
                end = json.loads((folder / name).read_text()).get("eos_token_id", -1)
                self.end = end[0] if isinstance(end, list) else -1 if end is None else end

    def encode(self, text: str) -> list[int]:
        """Return a text's tokens."""
        return list(self._reader.encode(text).ids)

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """Yield what each token adds to the text of those before it."""
        seen: list[int] = []
        said = ""
        for token in tokens:
            seen.append(token)
            text = self._reader.decode(seen)
            if not text.endswith("\ufffd"):
                yield text[len(said) :]
                said = text


def open_tokenizer(folder: Path) -> Tokenizer | Foreign:
    """Return the tokenizer that a model's folder has: merges.json, or tokenizer.json."""
    own = folder / "merges.json"
    return Tokenizer.load(own) if own.is_file() else Foreign(folder)
