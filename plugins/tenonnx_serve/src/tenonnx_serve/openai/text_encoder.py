"""Models that make vectors of texts: encoders with a tokenizer, and decoders' hidden states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx.process import interruption
from tenonnx_generate import Generator, GeneratorParams
from tenonnx_generate.files import TOKENIZER_LIMIT, read_text
from tenonnx_generate.tokenizer import open_tokenizer
from tenonnx_serve import layout
from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.pooling import LENGTH, MODULES, pooling_in
from tenonnx_serve.requests import Array, Output, Request

if TYPE_CHECKING:
    from tenonnx_serve.batching import Queue
    from tenonnx_serve.openai.language_model import LanguageModel

NDArray = np.ndarray[Any, np.dtype[Any]]

Infer = Callable[[Request], Awaitable[list[Array]]]

TOKENIZER: Final = "tokenizer.json"
POOLED: Final = "sentence_embedding"
# Outputs by the names that exporters give them.
VECTORS: Final = ("last_hidden_state", "token_embeddings", "hidden_states")

# Texts of a run.
TEXTS_PER_RUN: Final = 32

HIDDEN: Final = "hidden_states"


class TextEncoder:
    """An encoder that is served as a model of tensors, with the tokenizer in its folder.

    Args:
        queue: The model's requests.
        root: The folder that must contain the files.

    Attributes:
        pooling: The way from tokens' vectors to a text's.

    Raises:
        Wrong: The model is none: there is no tokenizer, or its inputs or outputs are others.
        TenonnxError: A file is wrong.
    """

    def __init__(self, queue: Queue, root: Path) -> None:
        self._queue, model = queue, queue.model
        place = None if model.folder is None else _place(model.folder, root)
        if place is None:
            raise Wrong(f"model '{model.name}' has no {TOKENIZER} beside it", "model")
        self.pooling = pooling_in(place, "mean")
        self._reader = open_tokenizer(read_text(place / TOKENIZER, TOKENIZER_LIMIT), str(place))
        self._reader.no_padding()
        if self.pooling.most:
            self._reader.enable_truncation(self.pooling.most)
        unknown = model.inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"}
        outputs = [name for name in (POOLED, *VECTORS) if name in model.outputs]
        if unknown or "input_ids" not in model.inputs or not outputs:
            raise Wrong(
                f"model '{model.name}' makes no vectors of texts: it has the inputs "
                f"{list(model.inputs)} and the outputs {list(model.outputs)}",
                "model",
            )
        self._output = outputs[0]

    def encode(self, texts: Sequence[str | list[int]]) -> list[list[int]]:
        """Return the tokens of each text.

        Raises:
            Wrong: There is no such token.
        """
        lowers, size = self.pooling.lowers, self._reader.get_vocab_size()
        for text in texts:
            if not isinstance(text, str) and text and not 0 <= min(text) <= max(text) < size:
                raise Wrong(f"a text of input has tokens that are not 0 to {size - 1}", "input")
        return [
            self._reader.encode(text.lower() if lowers else text).ids
            if isinstance(text, str)
            else text
            for text in texts
        ]

    async def vectors(self, texts: Sequence[list[int]], infer: Infer) -> NDArray:
        """Return a vector of each text, given as tokens; those of like lengths run together.

        Args:
            texts: The tokens of each.
            infer: Runs a request of the model.
        """
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        found: dict[int, NDArray] = {}
        for start in range(0, len(order), TEXTS_PER_RUN):
            numbers = order[start : start + TEXTS_PER_RUN]
            made = await self._run([texts[number] for number in numbers], infer)
            found.update(zip(numbers, made, strict=True))
        return np.stack([found[number] for number in range(len(texts))])

    async def _run(self, texts: Sequence[list[int]], infer: Infer) -> NDArray:
        ids = np.zeros((len(texts), max(map(len, texts))), np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        specs = self._queue.model.inputs
        inputs = {name: given[name].astype(spec.dtype) for name, spec in specs.items()}
        (output,) = await infer(Request(inputs, (Output(self._output),)))
        found = output.astype(np.float32)
        if found.ndim == 2:
            return self.pooling.normalized(found)
        return self.pooling.of(found, mask)


class DecoderEncoder:
    """A language model whose graph has hidden states.

    Args:
        model: The model.

    Attributes:
        pooling: The way from tokens' vectors to a text's.

    Raises:
        Wrong: It has none.
    """

    def __init__(self, model: LanguageModel) -> None:
        if HIDDEN not in {output.name for output in model.session.get_outputs()}:
            raise Wrong(
                f"the model '{model.name}' has no output {HIDDEN}, of which embeddings are made: "
                "its builder writes it with include_hidden_states=true",
                "model",
                "unsupported_model",
            )
        self._model = model
        self.pooling = pooling_in(Path(model.model.description.folder), "lasttoken")

    def vectors(self, texts: Sequence[NDArray]) -> NDArray:
        """Return a vector of each text, given as tokens; in a thread."""
        made = []
        for tokens in texts:
            params = GeneratorParams(self._model.model)
            params.set_search_options(max_length=len(tokens) + 1, chunk_size=len(tokens))
            generator = Generator(self._model.model, params)
            interruption.check()
            generator.append_tokens(tokens)
            states = generator.get_output(HIDDEN)[:, -len(tokens) :].astype(np.float32)
            made.append(self.pooling.of(states, np.ones(states.shape[:2], np.int64))[0])
        return np.stack(made)


def _place(folder: Path, root: Path) -> Path | None:
    """Return the folder of an encoder's tokenizer: its own, or the one above it."""
    real = (root if root.is_dir() else root.parent).resolve()
    for place in (folder, folder.parent):
        files = [place / name for name in (TOKENIZER, MODULES, LENGTH)]
        if files[0].is_file() and all(layout.inside(file, real) for file in files):
            return place
    return None
