"""Routes of the OpenAI API that generate nothing: embeddings, and vLLM's tokenize and detokenize.

Embeddings come from an encoder, which is served as any model (a ``Queue``, requests are joined), or
from the hidden states of a language model (``Generations``). ``openai.routes`` has the paths.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct

from tenonnx_serve.batching import Queue
from tenonnx_serve.errors import Missing, ServeError
from tenonnx_serve.openai import requests
from tenonnx_serve.openai.errors import NoSuchModel, Wrong
from tenonnx_serve.openai.generations import Generations
from tenonnx_serve.openai.language_model import LanguageModel, too_long
from tenonnx_serve.openai.messages import ChatMessage, parsed
from tenonnx_serve.openai.text_encoder import DecoderEncoder, TextEncoder
from tenonnx_serve.requests import Array, Request, quoted
from tenonnx_serve.rest import Answer, Call, answer

NDArray = np.ndarray[Any, np.dtype[Any]]


class EmbeddingsRequest(Struct, kw_only=True):  # type: ignore[misc, call-arg]
    """The body of a request for embeddings: texts, or tokens."""

    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    user: Any = None


class TokenizeRequest(Struct, kw_only=True):  # type: ignore[misc, call-arg]
    """The body of a request for the tokens of a text or of messages; vLLM's."""

    model: str = ""
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(Struct, kw_only=True):  # type: ignore[misc, call-arg]
    """The body of a request for the text of tokens; vLLM's."""

    model: str = ""
    tokens: list[Annotated[int, Meta(ge=0, lt=1 << 31)]]


async def embeddings(call: Call) -> Answer:
    """Return the embeddings of texts."""
    body = await _parsed_body(call, EmbeddingsRequest)
    served = _version(call, body.model)
    texts = requests.prompts(body.input, "input")
    if len(texts) > requests.MOST_TEXTS:
        raise Wrong(
            f"input has {len(texts)} texts; expected at most {requests.MOST_TEXTS}", "input"
        )
    if isinstance(served, Queue):
        vectors, count = await _encoder_vectors(call, served, texts, body.dimensions)
    else:
        vectors, count = await _decoder_vectors(call, served, texts, body.dimensions)
    if not np.isfinite(vectors).all():
        raise ServeError("the model's embeddings are no numbers")
    data = [
        {
            "object": "embedding",
            "index": number,
            "embedding": _encoded_vector(row, body.encoding_format),
        }
        for number, row in enumerate(vectors)
    ]
    usage = {"prompt_tokens": count, "total_tokens": count}
    return answer({"object": "list", "data": data, "model": body.model, "usage": usage})


async def _encoder_vectors(
    call: Call, queue: Queue, texts: Sequence[str | list[int]], size: int | None
) -> tuple[NDArray, int]:
    root = Path(call.core.settings.source)
    if queue.encoder is None:
        queue.encoder = await call.core.threads.submit(lambda: TextEncoder(queue, root))
    encoder: TextEncoder = queue.encoder
    tokens = await call.core.threads.submit(lambda: encoder.encode(texts))
    if not all(tokens):
        raise Wrong("a text of input has no tokens", "input")

    async def infer(request: Request) -> list[Array]:
        return await call.core.infer(
            queue, 0, lambda: request, lambda _, arrays: arrays, call.watch
        )

    vectors = await encoder.vectors(tokens, infer)
    return _cut(encoder, vectors, size), sum(map(len, tokens))


async def _decoder_vectors(
    call: Call, served: Generations, texts: Sequence[str | list[int]], size: int | None
) -> tuple[NDArray, int]:
    model = served.model

    def work() -> tuple[NDArray, int]:
        encoder = DecoderEncoder(model)
        tokens = [requests.encoded(model, text, "input") for text in texts]
        for each in tokens:
            if not len(each):
                raise Wrong("a text of input has no tokens", "input")
            if len(each) >= model.context:
                raise too_long(f"{len(each)} in a text of input", model.context, "input")
        return _cut(encoder, encoder.vectors(tokens), size), sum(map(len, tokens))

    watch = call.watch()
    try:
        return await served.worked(work, call.core.settings.limits.seconds)
    finally:
        watch.end()


def _cut(encoder: TextEncoder | DecoderEncoder, vectors: NDArray, size: int | None) -> NDArray:
    if size is None:
        return vectors
    if size > vectors.shape[1]:
        raise Wrong(f"dimensions is {size}; the model has {vectors.shape[1]}", "dimensions")
    return encoder.pooling.normalized(vectors[:, :size])


def _encoded_vector(vector: NDArray, form: str) -> str | list[float]:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()  # type: ignore[no-any-return]  # numpy does not tell its type


async def tokenize(call: Call) -> Answer:
    """Return the tokens of a text, or of messages as the chat template writes them."""
    body = await _parsed_body(call, TokenizeRequest)
    model = _language(call, body.model).model
    if (body.prompt is None) == (body.messages is None):
        raise Wrong("tokenize takes prompt or messages, one of them", "prompt")

    def work() -> list[int]:
        if body.prompt is not None:
            special = body.add_special_tokens
            return model.encode(body.prompt, "prompt", special=special).tolist()  # type: ignore[no-any-return]
        text = model.tokenizer.apply_chat_template(
            [requests.message(each, n) for n, each in enumerate(body.messages or ())],
            add_generation_prompt=body.add_generation_prompt,
        )
        return model.encode(text, "messages", special=False).tolist()  # type: ignore[no-any-return]

    tokens = await call.core.threads.submit(work)
    written = [model.tokenizer.written(token) for token in tokens]
    return answer({
        "count": len(tokens),
        "max_model_len": model.context,
        "tokens": tokens,
        "token_strs": written if body.return_token_strs else None,
    })  # fmt: skip


async def detokenize(call: Call) -> Answer:
    """Return the text of tokens."""
    body = await _parsed_body(call, DetokenizeRequest)
    model = _language(call, body.model).model
    text = await call.core.threads.submit(lambda: model.tokenizer.decode(body.tokens))
    return answer({"prompt": text})


async def tokenizer_info(call: Call) -> Answer:
    """Return the special tokens of the only language model; vLLM's."""
    model = _language(call, "").model
    about = model.model.description
    return answer({
        "bos_token": _special(model, about.bos),
        "eos_token": _special(model, about.eos[0] if about.eos else None),
        "pad_token": _special(model, about.pad),
        "model_max_length": model.context,
    })  # fmt: skip


def _special(model: LanguageModel, token: int | None) -> str | None:
    return None if token is None else model.tokenizer.written(token)


async def _parsed_body(call: Call, kind: type[Any]) -> Any:
    settings = call.core.settings
    return parsed(await call.json_body(settings.limits.json), kind, settings.ignores_unknown)


def _version(call: Call, name: str) -> Queue | Generations:
    try:
        return call.core.repository.version(name)
    except Missing:
        raise NoSuchModel(f"the model {quoted(name)} does not exist") from None


def _language(call: Call, name: str) -> Generations:
    """Return a language model; without a name, the only one."""
    if not name:
        loaded = call.core.repository.language_models()
        if len(loaded) != 1:
            raise Wrong(f"there are {len(loaded)} language models: name one", "model")
        return loaded[0]
    found = _version(call, name.partition(":")[0])
    if isinstance(found, Queue):
        raise Wrong(f"the model {quoted(name)} is no language model", "model", "unsupported_model")
    return found
