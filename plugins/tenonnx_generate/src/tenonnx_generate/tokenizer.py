"""``Tokenizer``: text to ids and back, by a folder's ``tokenizer.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import did_you_mean
from tenonnx_generate.chat import apply_template, parse_messages
from tenonnx_generate.errors import Missing, Refused
from tenonnx_generate.files import (
    CONFIG_LIMIT,
    TOKENIZER_LIMIT,
    needed,
    parse_object,
    read_text,
)
from tenonnx_generate.model import Model
from tenonnx_generate.streaming import TokenizerStream
from tenonnx_generate.tensor import Tensor

NDArray = np.ndarray[Any, np.dtype[Any]]

FLAGS = {"true": True, "1": True, "false": False, "0": False}


class Tokenizer:
    """A folder's tokenizer, read by the ``tokenizers`` library.

    Args:
        model: The model whose folder it lies in.

    Raises:
        Missing: The folder has no ``tokenizer.json``.
        Refused: It cannot be read.
        NotInstalled: The library ``tokenizers`` is not there.
    """

    def __init__(self, model: Model) -> None:
        self._about = model.description
        path = os.path.join(self._about.folder, "tokenizer.json")
        if not os.path.isfile(path):
            raise Missing(
                f"{self._about.folder} has no tokenizer.json",
                hint="transformers writes one: AutoTokenizer.from_pretrained(...).save_pretrained",
            )
        self._reader = open_tokenizer(read_text(path, TOKENIZER_LIMIT), path)
        self._options = {"add_special_tokens": True, "skip_special_tokens": True}
        self._settings: dict[str, Any] | None = None

    @property
    def bos_token_id(self) -> int:
        """The token that begins a text; -1 if there is none."""
        return -1 if self._about.bos is None else self._about.bos

    @property
    def eos_token_ids(self) -> NDArray:
        """The tokens that end a text."""
        return np.array(self._about.eos, np.int32)

    @property
    def pad_token_id(self) -> int:
        """The token that pads a batch."""
        return self._about.pad

    def update_options(self, **options: str | bool) -> None:
        """Set ``add_special_tokens``, for encoding, and ``skip_special_tokens``, for decoding.

        Raises:
            Refused: There is no such option, or its value is neither true nor false.
        """
        for name, value in options.items():
            if name not in self._options:
                raise Refused(f"there is no option {name!r}{did_you_mean(name, self._options)}")
            flag = FLAGS.get(str(value).lower())
            if flag is None:
                raise Refused(f"{name} is {value!r:.60}; expected true or false")
            self._options[name] = flag

    def encode(self, text: str, *, add_special_tokens: bool | None = None) -> NDArray:
        """Return a text's tokens; ``None`` takes the option ``add_special_tokens``."""
        added = add_special_tokens
        added = self._options["add_special_tokens"] if added is None else added
        return np.array(self._reader.encode(text, add_special_tokens=added).ids, np.int32)

    def encode_batch(self, texts: Sequence[str]) -> Tensor:
        """Return the tokens of several texts, [texts, tokens], padded on the right."""
        rows = [self.encode(text) for text in texts]
        padded = np.full((len(rows), max(map(len, rows), default=0)), self._about.pad, np.int32)
        for row, tokens in zip(padded, rows, strict=True):
            row[: len(tokens)] = tokens
        return Tensor(padded)

    def decode(self, tokens: Any) -> str:
        """Return the text of tokens; those that there are not have none.

        Raises:
            Refused: They are no whole numbers from 0 on.
        """
        array = np.asarray(tokens).reshape(-1)
        if array.size and (array.dtype.kind not in "iu" or (array < 0).any()):
            raise Refused(f"{tokens!r:.60} are no tokens: they are whole numbers from 0 on")
        return self._text(array.tolist())

    def decode_batch(self, tokens: Any) -> list[str]:
        """Return the text of each row of tokens."""
        return [self.decode(row) for row in np.asarray(tokens)]

    def create_stream(self) -> TokenizerStream:
        """Return what decodes one sequence's tokens as they come."""
        return TokenizerStream(self._text)

    def to_token_id(self, text: str) -> int:
        """Return the token that is written so; -1 if there is none."""
        found = self._reader.token_to_id(text)
        return -1 if found is None else int(found)

    def written(self, token: int) -> str:
        """Return how the vocabulary writes a token; nothing if there is none."""
        return str(self._reader.id_to_token(token) or "")

    def apply_chat_template(
        self,
        messages: str | Sequence[dict[str, Any]],
        *,
        template_str: str | None = None,
        tools: str | Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **values: Any,
    ) -> str:
        """Return messages as a prompt.

        Args:
            messages: Objects with a ``role`` and a ``content``, or a JSON array of such.
            template_str: A template to take instead of the folder's.
            tools: Descriptions of functions that may be called, or a JSON array of such.
            add_generation_prompt: Begin the answer.
            values: What the template may ask for besides.

        Raises:
            Refused: There is no template, it fails, or the messages are none.
        """
        template = template_str or self.chat_template(with_tools=bool(tools))
        given = {
            **self._named_tokens(),
            "messages": _objects(messages, "messages"),
            "tools": None if tools is None else _objects(tools, "tools"),
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        return apply_template(template, {**given, **values})

    def _text(self, tokens: Iterable[int]) -> str:
        skips = self._options["skip_special_tokens"]
        text: str = self._reader.decode(list(tokens), skip_special_tokens=skips)
        return text

    def _configuration(self) -> dict[str, Any]:
        if self._settings is None:
            path = os.path.join(self._about.folder, "tokenizer_config.json")
            text = read_text(path, CONFIG_LIMIT) if os.path.isfile(path) else "{}"
            self._settings = parse_object(text, path)
        return self._settings

    def chat_template(self, *, with_tools: bool = False) -> str:
        """Return the folder's template; the one for tools, if there is one and they are given.

        Raises:
            Refused: There is none.
        """
        path = os.path.join(self._about.folder, "chat_template.jinja")
        if os.path.isfile(path):
            return read_text(path, CONFIG_LIMIT)
        found = self._configuration().get("chat_template")
        if isinstance(found, list):
            named = {
                each.get("name"): each.get("template") for each in _objects(found, "templates")
            }
            found = (with_tools and named.get("tool_use")) or named.get("default")
        if not isinstance(found, str):
            raise Refused(
                f"{self._about.folder} has no chat template, so it takes prompts and no messages",
                hint="add its model's chat_template.jinja, or give one as template_str",
            )
        return found

    def _named_tokens(self) -> dict[str, str]:
        """Return how special tokens are written, by the names that templates have for them."""
        named = {}
        for name, token in self._configuration().items():
            if name.endswith("_token"):
                written = token.get("content") if isinstance(token, dict) else token
                if isinstance(written, str):
                    named[name] = written
        return named


def open_tokenizer(text: str, path: str) -> Any:
    """Return the library's tokenizer of a ``tokenizer.json``.

    Raises:
        Refused: The library cannot read it.
    """
    library = needed("tokenizers")
    try:
        return library.Tokenizer.from_str(text)
    except Exception as error:  # the library has no class of its own
        raise Refused(f"{path} is no tokenizer: {error}") from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which is no Exception
            raise
        raise Refused(f"{path} is no tokenizer that the library takes: {error}") from error


def _objects(given: Any, what: str) -> list[Any]:
    return parse_messages(given if isinstance(given, str) else json.dumps(given), what)
