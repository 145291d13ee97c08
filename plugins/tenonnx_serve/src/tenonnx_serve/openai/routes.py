"""The paths of OpenAI's API, and answers as server-sent events."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tenonnx_serve.core import client_error
from tenonnx_serve.errors import Missing
from tenonnx_serve.openai.errors import NoSuchModel, Wrong
from tenonnx_serve.openai.errors import as_json as error_json
from tenonnx_serve.requests import quoted
from tenonnx_serve.rest import Answer, Call, DisconnectWatch, Handler, Routes, answer, encoded

if TYPE_CHECKING:
    from tenonnx_serve.openai.answers import Answers
    from tenonnx_serve.openai.choices import Choice, Piece
    from tenonnx_serve.openai.generations import Generations
    from tenonnx_serve.openai.messages import Sampling
    from tenonnx_serve.openai.requests import Prepared
    from tenonnx_serve.openai.steps import Step

TEXT: Final = [(b"content-type", b"text/plain; charset=utf-8")]
EVENTS: Final = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]


async def models(call: Call) -> Answer:
    """List the language models that are loaded, or tell of one."""
    if call.path:
        return answer(_described(_named(call, call.path[0]), call.path[0]))
    found = []
    for each in call.core.repository.language_models():
        name, adapters = each.model.name, each.model.adapters
        names = [f"{name}:{adapter}" for adapter in (adapters.names if adapters else ())]
        found += [_described(each, told) for told in (name, *names)]
    return answer({"object": "list", "data": found})


async def chat(call: Call) -> Answer:
    """Answer messages."""
    body = await call.json_body(call.core.settings.limits.json)
    from tenonnx_serve.openai import answers, messages, requests

    asked = messages.parsed(body, messages.ChatRequest, call.core.settings.ignores_unknown)
    served = _find(call, asked.model)
    limit = call.core.settings.limits.tokens
    made = await call.core.threads.submit(lambda: requests.chat(served.model, asked, limit))
    return await _answered(
        call, served, asked, made, answers.ChatAnswers(served.model, asked.model)
    )


async def completions(call: Call) -> Answer:
    """Continue texts."""
    body = await call.json_body(call.core.settings.limits.json)
    from tenonnx_serve.openai import answers, messages, requests

    asked = messages.parsed(body, messages.CompletionRequest, call.core.settings.ignores_unknown)
    served = _find(call, asked.model)
    limit = call.core.settings.limits.tokens
    made = await call.core.threads.submit(lambda: requests.completion(served.model, asked, limit))
    told_in = answers.CompletionAnswers(served.model, asked.model, made.jobs, made.echoes)
    return await _answered(call, served, asked, made, told_in)


async def responses(call: Call) -> Answer:
    """Answer messages in the form of the Responses API."""
    body = await call.json_body(call.core.settings.limits.json)
    from tenonnx_serve.openai import messages, requests, response_answers
    from tenonnx_serve.openai import responses as kinds

    settings = call.core.settings
    asked = messages.parsed(body, kinds.ResponsesRequest, settings.ignores_unknown)
    served, as_chat = _find(call, asked.model), kinds.chat_of(asked)
    limit = settings.limits.tokens
    made = await call.core.threads.submit(lambda: requests.chat(served.model, as_chat, limit))
    return await _answered(call, served, as_chat, made, response_answers.ResponseAnswers(asked))


async def transcriptions(call: Call) -> Answer:
    """Transcribe a sound."""
    body = await call.body()
    from tenonnx_serve.openai import transcriptions as made

    kind, ignores = call.headers.get(b"content-type", b""), call.core.settings.ignores_unknown
    asked = made.parsed(bytes(body), kind, ignores)
    served = _find(call, asked.model, sounds=True)
    watch, seconds = call.watch(), call.core.settings.limits.seconds
    if asked.stream:
        chunks = made.chunks(served, asked, seconds, watch)
        return Answer(Events(await anext(chunks), chunks), EVENTS)
    try:
        found = await served.worked(lambda: made.transcribed(served.model, asked), seconds)
    finally:
        watch.end()
    if asked.response_format == "text":
        return Answer(f"{found.text}\n".encode(), TEXT)
    if asked.response_format in ("srt", "vtt"):
        return Answer(found.subtitles(asked.response_format).encode(), TEXT)
    return answer(found.as_json(asked.response_format))


async def embeddings(call: Call) -> Answer:
    """Answer with the embeddings of texts."""
    from tenonnx_serve.openai import texts

    return await texts.embeddings(call)


async def tokenize(call: Call) -> Answer:
    """Answer with the tokens of a text."""
    from tenonnx_serve.openai import texts

    return await texts.tokenize(call)


async def tokenizer_info(call: Call) -> Answer:
    """Answer with the special tokens of the only language model."""
    from tenonnx_serve.openai import texts

    return await texts.tokenizer_info(call)


async def detokenize(call: Call) -> Answer:
    """Answer with the text of tokens."""
    from tenonnx_serve.openai import texts

    return await texts.detokenize(call)


async def _answered(
    call: Call, served: Generations, asked: Sampling, made: Prepared, answers: Answers
) -> Answer:
    """Return the answer, whole or as a stream that has begun."""
    from tenonnx_serve.openai.choices import Choice

    tokenizer = served.model.tokenizer
    choices = [Choice(job, tokenizer, asked.stops, made.form) for job in made.jobs]
    steps = served.steps(made.jobs, call.core.settings.limits.seconds)
    pieces = _pieces(call.watch(), steps, choices)
    if asked.stream:
        chunks = _chunks(pieces, asked, made, answers, choices)
        # What is wrong before the first token has a status of its own.
        return Answer(Events(await anext(chunks), chunks), EVENTS)
    texts: list[list[Piece]] = [[] for _ in choices]
    async with contextlib.aclosing(pieces):
        async for number, piece in pieces:
            texts[number].append(piece)
    return answer(answers.whole(texts, _usage(made, choices)))


async def _pieces(
    watch: DisconnectWatch, steps: AsyncGenerator[tuple[int, Step], None], choices: Sequence[Choice]
) -> AsyncGenerator[tuple[int, Piece], None]:
    """Yield the pieces of several texts; the last of each says why it has ended."""
    try:
        async with contextlib.aclosing(steps):
            async for number, step in steps:
                yield number, choices[number].take(step)
        for number, choice in enumerate(choices):
            if not choice.ended:
                yield number, choice.finish()
    finally:
        watch.end()


async def _chunks(
    pieces: AsyncGenerator[tuple[int, Piece], None],
    asked: Sampling,
    made: Prepared,
    answers: Answers,
    choices: Sequence[Choice],
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield what a stream tells."""
    begun = set[int]()
    async with contextlib.aclosing(pieces):
        async for number, piece in pieces:
            for part in piece.parts:
                first = number not in begun
                if first or not part.is_empty:
                    begun.add(number)
                    tells = asked.tells_usage
                    for chunk in answers.chunks(number, part, first=first, tells_usage=tells):
                        yield chunk
    for chunk in answers.ends(_usage(made, choices), tells_usage=asked.tells_usage):
        yield chunk


class Events:
    """Chunks as server-sent events; what goes wrong is one too.

    Args:
        first: The first chunk.
        chunks: The others.
    """

    def __init__(self, first: dict[str, Any], chunks: AsyncGenerator[dict[str, Any], None]) -> None:
        self._first: dict[str, Any] | None = first
        self._chunks = chunks
        self._ended = False

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> bytes:
        """Return the next event."""
        if self._ended:
            raise StopAsyncIteration
        chunk, self._first = self._first, None
        try:
            return _event(await anext(self._chunks) if chunk is None else chunk)
        except StopAsyncIteration:
            self._ended = True
            return b"data: [DONE]\n\n"
        except Exception as error:  # whatever it is, the client gets an answer
            self._ended = True
            return _event(error_json(client_error(error)))

    async def aclose(self) -> None:
        """End what is generated."""
        await self._chunks.aclose()


def _event(said: dict[str, Any]) -> bytes:
    kind = said.get("type", "").encode()  # of the Responses API
    return (b"event: %b\n" % kind if kind else b"") + b"data: " + encoded(said) + b"\n\n"


def _usage(made: Prepared, choices: Sequence[Choice]) -> dict[str, Any]:
    prompt, generated = made.prompt_tokens, sum(choice.tokens for choice in choices)
    total = prompt + generated
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": total}


def _named(call: Call, name: str) -> Generations:
    base, named, adapter = name.partition(":")
    try:
        found = call.core.repository.find_language(base)
        adapters = found.model.adapters
        if named and (adapters is None or adapter not in adapters.names):
            raise Missing(name)
        return found
    except Missing:
        raise NoSuchModel(f"the model {quoted(name)} does not exist") from None


def _find(call: Call, name: str, *, sounds: bool = False) -> Generations:
    found = _named(call, name)
    if found.model.takes_sounds != sounds:
        takes = "texts" if sounds else "sounds, at /v1/audio/transcriptions"
        raise Wrong(f"the model {quoted(name)} takes {takes}", "model", "unsupported_model")
    return found


def _described(served: Generations, name: str) -> dict[str, Any]:
    model = served.model
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "tenonnx",
        "max_model_len": model.context,
    }


ROUTES: Final[list[tuple[str, str, Handler]]] = [
    ("GET", "/v1/models", models),
    ("GET", "/v1/models/*", models),
    ("POST", "/v1/chat/completions", chat),
    ("POST", "/v1/completions", completions),
    ("POST", "/v1/responses", responses),
    ("POST", "/v1/audio/transcriptions", transcriptions),
    ("POST", "/v1/embeddings", embeddings),
    ("GET", "/tokenizer_info", tokenizer_info),
    ("POST", "/tokenize", tokenize),
    ("POST", "/detokenize", detokenize),
]


def add_to(routes: Routes) -> None:
    """Add them."""
    for method, path, handler in ROUTES:
        routes.add(method, path, handler)
