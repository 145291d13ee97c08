"""Embeddings of texts from tokens' vectors, as the files of sentence-transformers say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct

from tenonnx import InvalidArgument, NotSupported

NDArray = np.ndarray[Any, np.dtype[Any]]

MODULES: Final = "modules.json"
LENGTH: Final = "sentence_bert_config.json"
CONFIG_LIMIT: Final = 1 << 20

# The fields of a pooling's configuration, and the mode that each turns on.
FLAGS: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


class Module(Struct):  # type: ignore[misc]  # the checker sees no msgspec
    """A step from a text to its embedding."""

    type: str
    path: str = ""


class Lengths(Struct):  # type: ignore[misc]  # likewise
    """The number of tokens of a text that count."""

    max_seq_length: int | None = None
    do_lower_case: bool = False


@dataclass(frozen=True)
class Pooling:
    """The way from tokens' vectors to a text's.

    Attributes:
        modes: How vectors become one; the results of several modes follow each other.
        normalizes: The result has the length 1.
        most: Tokens of a text that count; 0 for as many as the model takes.
        lowers: Texts become lower case.
    """

    modes: tuple[str, ...]
    normalizes: bool = True
    most: int = 0
    lowers: bool = False

    def of(self, vectors: NDArray, mask: NDArray) -> NDArray:
        """Return embeddings [texts, size] of vectors [texts, tokens, size].

        Args:
            vectors: Of each token, float32.
            mask: 1 for each token of a text, and 0 for what pads it, [texts, tokens].
        """
        weights = mask[..., None].astype(np.float32)
        made = np.concatenate([_MODES[mode](vectors, weights) for mode in self.modes], axis=1)
        return self.normalized(made)

    def normalized(self, made: NDArray) -> NDArray:
        """Return embeddings of length 1, if they are normalized."""
        if not self.normalizes:
            return made
        lengths = np.linalg.norm(made, axis=1, keepdims=True)
        result: NDArray = made / np.maximum(lengths, 1e-12)
        return result


def pooling_in(folder: Path, default: str) -> Pooling:
    """Return what the files of a folder say; without files ``default``, normalized.

    Raises:
        InvalidArgument: A file is wrong.
        NotSupported: There is a step that is not to be had here, such as ``Dense``.
    """
    said = _read(folder / LENGTH, Lengths) if (folder / LENGTH).is_file() else Lengths()
    most, lowers = said.max_seq_length or 0, said.do_lower_case
    if not (folder / MODULES).is_file():
        return Pooling((default,), True, most, lowers)
    modes: tuple[str, ...] = (default,)
    normalizes = False
    for module in _read(folder / MODULES, list[Module]):
        kind = module.type.rpartition(".")[2]
        if kind == "Pooling":
            modes = _modes(_path(folder, module.path) / "config.json")
        elif kind == "Normalize":
            normalizes = True
        elif kind != "Transformer":
            raise NotSupported(f"{folder / MODULES} has a {kind}; expected Pooling or Normalize")
    return Pooling(modes, normalizes, most, lowers)


def _path(folder: Path, named: str) -> Path:
    path = (folder / named).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InvalidArgument(f"{folder / MODULES} names {named!r:.60}, which lies outside")
    return path


def _modes(file: Path) -> tuple[str, ...]:
    said = _read(file, dict[str, Any])
    named = said.get("pooling_mode")
    modes = tuple(mode for flag, mode in FLAGS.items() if said.get(flag) is True)
    modes = modes if named is None else tuple(named if isinstance(named, list) else [named])
    if not modes or not set(modes) <= _MODES.keys():
        raise NotSupported(f"{file} has the modes {modes!r:.60}; expected some of {list(_MODES)}")
    return modes


def _read(file: Path, kind: Any) -> Any:
    try:
        with file.open("rb") as opened:
            text = opened.read(CONFIG_LIMIT + 1)
        if len(text) > CONFIG_LIMIT:
            raise InvalidArgument(f"{file} has more than {CONFIG_LIMIT} bytes")
        return msgspec.json.decode(text, type=kind)
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArgument(f"{file} is wrong: {error}") from None


def _mean(vectors: NDArray, weights: NDArray) -> NDArray:
    result: NDArray = (vectors * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9)
    return result


def _mean_sqrt(vectors: NDArray, weights: NDArray) -> NDArray:
    total = np.sqrt(np.maximum(weights.sum(axis=1), 1e-9))
    result: NDArray = (vectors * weights).sum(axis=1) / total
    return result


def _weighted(vectors: NDArray, weights: NDArray) -> NDArray:
    places = np.arange(1, vectors.shape[1] + 1, dtype=np.float32)[None, :, None]
    return _mean(vectors, weights * places)


def _greatest(vectors: NDArray, weights: NDArray) -> NDArray:
    result: NDArray = np.where(weights > 0, vectors, np.float32(-1e9)).max(axis=1)
    return result


def _first(vectors: NDArray, weights: NDArray) -> NDArray:
    return _at(vectors, weights[..., 0].argmax(axis=1))


def _last(vectors: NDArray, weights: NDArray) -> NDArray:
    return _at(vectors, weights.shape[1] - 1 - weights[:, ::-1, 0].argmax(axis=1))


def _at(vectors: NDArray, places: NDArray) -> NDArray:
    result: NDArray = vectors[np.arange(len(vectors)), places]
    return result


_MODES: Final = {
    "cls": _first,
    "lasttoken": _last,
    "max": _greatest,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted,
}
