"""The client that OpenAI publishes, unchanged, against the server: its types check the answers."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="openai is not installed; tox -e openai")
pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")

import openai
from pydantic import BaseModel

from encoders import sweep, write_encoded, write_wave
from folders import TEMPLATE, write_folder
from servers import serving
from tenonnx_serve.access import Access
from tenonnx_serve.settings import Limits, Settings

TOKEN = "token-of-the-server"
HI: Any = [{"role": "user", "content": "hi"}]


class Answer(BaseModel):
    """The text that a model is to generate."""

    sure: bool


class Weather(BaseModel):
    """Tells the weather."""

    warm: bool


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = write_folder(tmp_path_factory.mktemp("openai") / "tiny")
    template = "{% for t in tools or [] %}<tool_call>{% endfor %}" + TEMPLATE
    (folder / "chat_template.jinja").write_text(template)
    secret = folder.parent / "token"
    secret.write_text(TOKEN)
    settings = Settings(
        str(folder), port=0, grpc_port=None, access=Access(token_file=str(secret)),
        limits=Limits(waiting=8, seconds=60),
    )  # fmt: skip
    with (
        serving(settings) as running,
        openai.OpenAI(
            base_url=f"http://{running.address}/v1", api_key=TOKEN, max_retries=0, timeout=60
        ) as made,
    ):
        yield made


def test_models(client: Any) -> None:
    (model,) = client.models.list()
    assert client.models.retrieve(model.id) == model


def test_a_chat_and_its_stream(client: Any) -> None:
    how: Any = {"model": "tiny", "messages": HI, "max_completion_tokens": 6, "seed": 3}
    whole = client.chat.completions.create(**how, temperature=1, logprobs=True, top_logprobs=3)
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens == 6
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 3
    told = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, end = client.chat.completions.create(**how, temperature=1, **told)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert end.usage == whole.usage


def test_parsed_answers_and_tools(client: Any) -> None:
    how: Any = {"model": "tiny", "messages": HI, "temperature": 1, "seed": 2, "max_tokens": 100}
    found = client.chat.completions.parse(**how, response_format=Answer)
    assert isinstance(found.choices[0].message.parsed, Answer)
    tool = openai.pydantic_function_tool(Weather)
    how |= {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    called = client.chat.completions.parse(**how)
    assert isinstance(called.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)
    with client.chat.completions.stream(**how) as stream:
        names = [e.name for e in stream if e.type == "tool_calls.function.arguments.done"]
    assert names == ["Weather"]


def test_completions(client: Any) -> None:
    how: Any = {"model": "tiny", "prompt": ["The", "A"], "max_tokens": 4}
    whole = client.completions.create(**how, logprobs=2)
    assert [len(choice.logprobs.tokens) for choice in whole.choices] == [4, 4]
    texts = ["", ""]
    for chunk in client.completions.create(**how, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


def test_errors_are_the_clients_exceptions(client: Any) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="none", messages=HI)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        create(model="tiny", messages=HI, max_tokens=1000)
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "messages")
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="tiny", input="a", encoding_format="float")
    with pytest.raises(openai.AuthenticationError) as wrong:
        client.with_options(api_key="other").models.list()
    assert json.loads(wrong.value.response.text)["error"]["code"] == "invalid_api_key"


def test_transcripts_of_sounds(tmp_path: Path) -> None:
    folder = write_encoded(tmp_path / "speech")
    sound = write_wave(tmp_path / "a.wav", sweep(1.4))
    with (
        serving(Settings(str(folder), port=0, grpc_port=None)) as running,
        openai.OpenAI(
            base_url=f"http://{running.address}/v1", api_key="any", max_retries=0, timeout=60
        ) as made,
        sound.open("rb") as file,
    ):
        how: Any = {"model": "speech", "language": "en", "file": (sound.name, file)}
        said = made.audio.transcriptions.create(**how).text
        file.seek(0)
        told = made.audio.transcriptions.create(**how, response_format="verbose_json")
        assert (told.text, told.duration, told.language) == (said, 1.4, "en")
        assert [segment.end for segment in told.segments or []] == [1, 1.4]
        file.seek(0)
        text: Any = made.audio.transcriptions.create(**how, response_format="text")
        assert text.rstrip("\n") == said
        with pytest.raises(openai.BadRequestError, match="takes sounds"):
            made.completions.create(model="speech", prompt="x")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Any]:
    """Serve a folder to a client of its own."""
    with (
        serving(Settings(str(folder), port=0, grpc_port=None)) as running,
        openai.OpenAI(
            base_url=f"http://{running.address}/v1", api_key="any", max_retries=0, timeout=60
        ) as made,
    ):
        yield made


def test_times_of_words(tmp_path: Path) -> None:
    sound = write_wave(tmp_path / "a.wav", sweep(1.4))
    with served(write_encoded(tmp_path / "aligned", aligned=True)) as client:
        told = client.audio.transcriptions.create(
            model="aligned", language="en", file=sound, response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )  # fmt: skip
    assert told.words
    assert "".join("".join(word.word for word in told.words).split()) == "".join(told.text.split())
    assert all(0 <= word.start <= word.end <= 1.4 for word in told.words)


def test_images_of_messages(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed")
    from pictures import picture, write_pictured

    url = "data:image/png;base64," + base64.b64encode(picture(40, 20)).decode()
    with served(write_pictured(tmp_path / "qwen", "qwen2_5_vl")) as client:
        parts: Any = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url, "detail": "auto"}},
        ]
        messages: Any = [{"role": "user", "content": parts}]
        how: Any = {"model": "qwen", "temperature": 0}
        whole = client.chat.completions.create(messages=messages, max_tokens=5, **how)
        content: Any = [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": url, "detail": "auto"},
        ]
        asked: Any = [{"role": "user", "content": content}]
        answer = client.responses.create(input=asked, max_output_tokens=5, **how)
    assert answer.output_text == whole.choices[0].message.content
    assert whole.usage.prompt_tokens > 50  # the image's tokens
