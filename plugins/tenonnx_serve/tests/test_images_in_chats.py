"""Images in chats and responses, as OpenAI's clients send them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")

from language import CHAT, events, folder_with
from pictures import picture, write_pictured
from servers import Running, serving
from tenonnx_generate import Generator, GeneratorParams, Images, Model
from tenonnx_serve.settings import Limits, Settings

FILES = [picture(40, 20, 1), picture(20, 30, 2, "JPEG")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    for kind in ("gemma3", "qwen2_5_vl"):
        write_pictured(folder / kind, kind)
    folder_with(folder / "text")
    settings = Settings(str(folder), port=0, grpc_port=None, limits=Limits(seconds=60))
    with serving(settings) as found:
        yield found


def address(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def asked(model: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": address(part), "detail": "low"}}
        for part in parts
    ]
    messages = [{"role": "user", "content": content}]
    return {"model": model, "messages": messages, "max_tokens": 6, "temperature": 0, **fields}


def expected(running: Running, kind: str, *contents: bytes) -> str:
    """Return what a generator says to `What is` and images."""
    model = Model(Path(running.settings.source) / kind)
    processor = model.create_multimodal_processor()
    place = "<start_of_image>" if kind == "gemma3" else "<|vision_start|><|vision_end|>"
    prompt = "<s><|user|>What is" + place * len(contents) + "<|assistant|>"
    params = GeneratorParams(model)
    params.set_search_options(do_sample=False)
    generator = Generator(model, params)
    generator.set_inputs(processor(prompt, images=Images.open_bytes(*contents)))
    begun = generator.token_count()
    for _ in range(6):
        if not generator.is_done():
            generator.generate_next_token()
    return processor.decode(generator.get_sequence(0)[begun:])


@pytest.mark.parametrize("kind", ["gemma3", "qwen2_5_vl"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_chat_with_images(running: Running, kind: str, count: int) -> None:
    said = asked(kind, "What is", *FILES[:count])
    status, answer, _ = running.call("POST", CHAT, said)
    assert status == 200, answer
    text = answer["choices"][0]["message"]["content"]
    assert text == expected(running, kind, *FILES[:count])
    assert answer["usage"]["prompt_tokens"] > 40
    told = [each["choices"][0]["delta"].get("content") for each in events(running, CHAT, said)]
    assert "".join(filter(None, told)) == text


def test_responses_with_images(running: Running) -> None:
    content = [
        {"type": "input_text", "text": "What is"},
        {"type": "input_image", "image_url": address(FILES[0]), "detail": "auto"},
    ]
    said = {"model": "gemma3", "input": [{"role": "user", "content": content}], "temperature": 0}
    status, answer, _ = running.call("POST", "/v1/responses", {**said, "max_output_tokens": 6})
    assert status == 200, answer
    text = answer["output"][0]["content"][0]["text"]
    assert text == expected(running, "gemma3", FILES[0])


def test_choices_and_texts_alone(running: Running) -> None:
    _, answer, _ = running.call("POST", CHAT, asked("gemma3", "What is", FILES[0], n=2))
    first, second = (choice["message"]["content"] for choice in answer["choices"])
    assert first == second
    _, other, _ = running.call("POST", CHAT, asked("gemma3", "What is", FILES[1]))
    assert other["choices"][0]["message"]["content"] != first
    assert running.call("POST", CHAT, asked("gemma3", "What ", "is"))[0] == 200


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1/cat.png", "this server fetches none"),
        ("file:///etc/passwd", "this server fetches none"),
        ("data:text/plain;base64,aaaa", "this server fetches none"),
        ("data:image/png;base64,a", "the image is no base64"),
        ("data:image/png;base64,aGk=", "image 1 is no image of"),
        (address(FILES[0][:200]), "image 1 cannot be decoded"),
    ],
)
def test_what_is_no_image(running: Running, url: str, message: str) -> None:
    said = asked("gemma3", "What is", FILES[0])
    said["messages"][0]["content"][1]["image_url"]["url"] = url
    status, answer, _ = running.call("POST", CHAT, said)
    assert status == 400, answer
    assert message in answer["error"]["message"]


def test_images_that_cannot_be_here(running: Running) -> None:
    status, answer, _ = running.call("POST", CHAT, asked("text", "What is", FILES[0]))
    assert (status, "text alone" in answer["error"]["message"]) == (400, True)
    audio = asked("gemma3", "What is", FILES[0])
    audio["messages"][0]["content"].append({"type": "input_audio"})
    status, answer, _ = running.call("POST", CHAT, audio)
    assert (status, "text and images" in answer["error"]["message"]) == (400, True)
    # A text that is written as the place of an image is one place too many.
    status, answer, _ = running.call("POST", CHAT, asked("gemma3", "<start_of_image>", FILES[0]))
    assert (status, "2 places for images" in answer["error"]["message"]) == (400, True)
    status, answer, _ = running.call("POST", CHAT, asked("gemma3", *[FILES[0]] * 5))
    assert (status, "the context has 1024" in answer["error"]["message"]) == (400, True)
    status, answer, _ = running.call("POST", CHAT, asked("gemma3", *[FILES[0]] * 3, max_tokens=900))
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
