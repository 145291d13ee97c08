"""OpenAI's API: answers, streams, tools, schemas and errors, of a tiny model over plain HTTP."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("jinja2", reason="tenonnx-generate is not installed")
pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")

from folders import TEMPLATE, VOCABULARY, write_folder
from language import CHAT, COMPLETIONS, MESSAGES, events, folder_with
from servers import Running, double, serving
from tenonnx import EPFail
from tenonnx_generate.engine import Engine
from tenonnx_generate.request import Request
from tenonnx_serve.access import Access
from tenonnx_serve.repository import Repository
from tenonnx_serve.settings import Limits, Settings

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"place": {"enum": ["Bern", "Rome"]}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}
TOOLS = TEMPLATE.replace(
    "{% for", "{% for t in tools or [] %}<tool_call>{{ t.function.name }}{% endfor %}{% for", 1
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    double(root / "double" / "1" / "model.onnx")
    folder_with(root / "tiny")
    (root / "tools").mkdir()
    # Without an engine: each text has a thread.
    write_folder(
        root / "tools" / "3", model={"context_length": 512},
        search={"max_length": 512, "past_present_share_buffer": False},
    )  # fmt: skip
    (root / "tools" / "3" / "chat_template.jinja").write_text(TOOLS)
    limits = Limits(waiting=4, seconds=20)
    with serving(
        Settings(str(root), port=0, grpc_port=None, limits=limits, access=Access(control=True))
    ) as found:
        yield found


def chat(running: Running, **asked: Any) -> Any:
    said = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, **asked}
    status, found, _ = running.call("POST", CHAT, said)
    assert status == 200, found
    return found


def test_models_are_listed(running: Running) -> None:
    _, found, _ = running.call("GET", "/v1/models")
    assert [model["id"] for model in found["data"]] == ["tiny", "tools"]
    assert running.call("GET", "/v1/models/tools")[1]["max_model_len"] == 512
    assert running.call("GET", "/v2/models/tools/versions/3/ready")[0] == 200
    status, found, _ = running.call("GET", "/v2/models/tiny")
    assert (status, "is a language model" in found["error"]) == (400, True)
    assert running.call("GET", "/v2/models/double")[0] == 200


def test_a_chat_and_its_stream_say_the_same(running: Running) -> None:
    whole = chat(running, logprobs=True, top_logprobs=2)
    (choice,) = whole["choices"]
    assert (whole["object"], choice["finish_reason"]) == ("chat.completion", "length")
    assert whole["usage"]["completion_tokens"] == 8
    said = {"model": "tiny", "messages": MESSAGES, "max_completion_tokens": 8, "logprobs": True}
    said["stream_options"] = {"include_usage": True}
    *chunks, end = events(running, CHAT, {**said, "top_logprobs": 2})
    deltas = [chunk["choices"][0] for chunk in chunks]
    assert deltas[0]["delta"]["role"] == "assistant"
    text = "".join(each["delta"].get("content", "") for each in deltas)
    assert text == choice["message"]["content"]
    tokens = [
        token for each in deltas for token in (each["logprobs"] or {"content": []})["content"]
    ]
    there = choice["logprobs"]["content"]
    assert [token["token"] for token in tokens] == [token["token"] for token in there]
    # The second prompt's caches are there: a product of one row adds up in another order.
    assert [token["logprob"] for token in tokens] == pytest.approx(
        [token["logprob"] for token in there], abs=1e-5
    )
    assert b"".join(bytes(t["bytes"]) for t in tokens).decode("utf-8", "replace") == text
    assert all(token["top_logprobs"][0]["logprob"] == token["logprob"] for token in tokens)
    assert (end["choices"], end["usage"]) == ([], whole["usage"])
    assert deltas[-1]["finish_reason"] == "length"


def test_seeds_repeat_and_choices_differ(running: Running) -> None:
    how = {"temperature": 1.5, "seed": 7, "n": 3}
    first, again = (chat(running, **how)["choices"] for _ in range(2))
    assert first == again
    assert len({choice["message"]["content"] for choice in first}) == 3
    assert chat(running, temperature=0) | {"id": ""} != chat(running, **how) | {"id": ""}


def test_texts_and_tokens_are_continued(running: Running) -> None:
    said = {"model": "tiny", "prompt": ["The", "The with"], "max_tokens": 6, "logprobs": 1}
    _, found, _ = running.call("POST", COMPLETIONS, said)
    texts = [choice["text"] for choice in found["choices"]]
    assert found["usage"] == {"prompt_tokens": 11, "completion_tokens": 12, "total_tokens": 23}
    assert len(found["choices"][0]["logprobs"]["token_logprobs"]) == 6
    same = {"model": "tiny", "prompt": [list(b"The"), list(b"The with")], "max_tokens": 6}
    chunks = events(running, COMPLETIONS, {**same, "echo": True})
    for index, prompt in enumerate(["The", "The with"]):
        parts = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert "".join(part["text"] for part in parts) == prompt + texts[index]
    stop = texts[0][2:4]
    ended = {"model": "tiny", "prompt": list(b"The"), "max_tokens": 6, "stop": stop}
    _, found, _ = running.call("POST", COMPLETIONS, ended)
    assert found["choices"][0]["text"] == texts[0][: texts[0].index(stop)]
    assert found["choices"][0]["finish_reason"] == "stop"


def test_answers_keep_to_a_schema(running: Running) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, "two"]}}, "required": ["a"]}
    schema |= {"additionalProperties": False, "x-guidance": {"whitespace_flexible": False}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    choices = chat(running, response_format=wanted, max_tokens=40, n=2, temperature=1)["choices"]
    for choice in choices:
        assert json.loads(choice["message"]["content"])["a"] in (1, "two")
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_tool_is_called(running: Running, choice: Any) -> None:
    said = {"model": "tools", "messages": MESSAGES, "tools": [WEATHER], "tool_choice": choice}
    said |= {"parallel_tool_calls": False, "temperature": 1, "seed": 3}
    found = chat(running, **said, max_tokens=200)["choices"][0]
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] is None
    (call,) = found["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["place"] in ("Bern", "Rome")
    streamed = [c["choices"][0] for c in events(running, CHAT, {**said, "max_tokens": 200})]
    (told,) = [call for each in streamed for call in each["delta"].get("tool_calls", [])]
    assert told["function"] == call["function"]
    answered = [*MESSAGES, found["message"], {"role": "tool", "tool_call_id": "x", "content": "1"}]
    assert chat(running, model="tools", messages=answered, tools=[WEATHER])["choices"]


def test_text_may_be_said_instead(running: Running) -> None:
    for tools in ("auto", "none", None):
        asked = {"model": "tools", "tools": [WEATHER], "tool_choice": tools}
        (choice,) = chat(running, **asked)["choices"]
        assert "tool_calls" not in choice["message"]
        assert choice["message"]["content"]


def wrong(**asked: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": MESSAGES, **asked}


@pytest.mark.parametrize(("path", "said", "status", "words", "param", "code"), [
    (CHAT, b"{", 400, "no JSON", None, None),
    (CHAT, {"model": "tiny"}, 400, "messages", None, None),
    (CHAT, wrong(model="none"), 404, "does not exist", "model", "model_not_found"),
    (CHAT, wrong(model="double"), 404, "does not exist", "model", "model_not_found"),
    (CHAT, wrong(temperature=3), 400, "<= 2", "temperature", None),
    (CHAT, wrong(who="me"), 400, "unknown field", "who", None),
    (CHAT, wrong(logit_bias={"264": 2}), 400, "no token 264", "logit_bias", None),
    (CHAT, wrong(logit_bias={"2": 101}), 400, "<= 100", "logit_bias[...]", None),
    (CHAT, wrong(stop_token_ids=[264]), 400, "no token 264", "stop_token_ids", None),
    (CHAT, wrong(guided_regex="a", guided_choice=["b"]), 400, "several", "structured_outputs",
     None),
    (CHAT, wrong(guided_regex="a", response_format={"type": "json_object"}), 400, "exclude", None,
     None),
    (CHAT, wrong(guided_json="["), 400, "no object", None, None),
    (CHAT, wrong(guided_grammar="start: nothing"), 400, "lark_grammar is wrong", None, None),
    (CHAT, wrong(guided_json={"$ref": "#"}), 400, "json_schema", None, None),
    (CHAT, wrong(top_logprobs=2), 400, "logprobs", "top_logprobs", None),
    (CHAT, wrong(max_tokens=512), 400, "maximum context", "messages", "context_length_exceeded"),
    (CHAT, wrong(messages=[{"role": "user", "content": "x" * 200_000}]), 400, "maximum context",
     "messages", "context_length_exceeded"),
    (CHAT, wrong(tools=[WEATHER]), 400, "no tools", "tools", "unsupported_parameter"),
    (CHAT, wrong(tool_choice="required"), 400, "not among tools", "tool_choice", None),
    (CHAT, wrong(response_format={"type": "json_schema"}), 400, "json_schema", "response_format",
     None),
    (CHAT, wrong(response_format={"type": "json_schema", "json_schema": {"schema": {"type": 3}}}),
     400, "json_schema is wrong", None, None),
    (CHAT, wrong(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400,
     "text alone", "messages[0].content", None),
    (CHAT, wrong(n=5), 400, "takes 4", None, None),
    (COMPLETIONS, {"model": "tiny", "prompt": [VOCABULARY]}, 400, "no token 264", "prompt", None),
    (COMPLETIONS, {"model": "tiny", "prompt": [-1]}, 400, "no token -1", "prompt", None),
    (COMPLETIONS, {"model": "tiny", "prompt": ""}, 400, "nothing to continue", "prompt", None),
    (COMPLETIONS, {"model": "tiny", "prompt": [1, "a"]}, 400, "no tokens", "prompt", None),
    (COMPLETIONS, {"model": "tiny", "prompt": "a", "suffix": "b"}, 400, "suffix", "suffix",
     "unsupported_parameter"),
    ("/v1/embeddings", {"model": "tiny", "input": "a"}, 400, "no output hidden_states", "model",
     "unsupported_model"),
    ("/v1/nothing", {}, 404, "", None, None),
])  # fmt: skip
def test_errors_have_openais_form(
    running: Running,
    path: str,
    said: Any,
    status: int,
    words: str,
    param: str | None,
    code: str | None,
) -> None:
    got, found, _ = running.call("POST", path, said)
    assert (got, found["error"]["type"]) == (status, "invalid_request_error")
    assert words in found["error"]["message"]
    assert (found["error"]["param"], found["error"]["code"]) == (param, code)


@pytest.fixture(name="endless")
def _endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have texts go on for ever, in the caches of a few tokens."""
    append = Request.append

    def again(self: Request, token: int) -> None:
        self.count = 20 if self.count > 60 else self.count
        append(self, token)

    monkeypatch.setattr(Request, "append", again)


@pytest.mark.usefixtures("endless")
def test_a_client_that_hangs_up_ends_its_generation(running: Running) -> None:
    served = running.server.core.repository.find_language("tiny")
    failed = served.model.statistics.fail.count
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", CHAT, json.dumps(wrong(stream=True)))
        with connection.getresponse() as answer:
            assert answer.readline().startswith(b"data: ")
            assert served.waiting == 1
            status, found, headers = running.call("POST", CHAT, wrong(n=4))
            assert (status, found["error"]["code"]) == (429, "rate_limit_exceeded")
            assert headers["retry-after"] == "1"
    end = time.monotonic() + 20
    while served.waiting and time.monotonic() < end:
        time.sleep(0.01)
    assert served.waiting == 0
    assert served.model.statistics.fail.count == failed + 1


@pytest.mark.usefixtures("endless")
def test_a_generation_has_so_much_time(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = dataclasses.replace(running.settings.limits, seconds=0.2)
    core = running.server.core
    monkeypatch.setattr(core, "settings", dataclasses.replace(core.settings, limits=limits))
    status, found, _ = running.call("POST", CHAT, wrong())
    assert (status, found["error"]["type"]) == (504, "server_error")
    status, body, _ = running.call("POST", CHAT, wrong(stream=True))
    assert status == 200
    last = json.loads(body.decode().split("\n\n")[-2].removeprefix("data: "))
    assert "took longer than 0.2 s" in last["error"]["message"]


def test_tokens_have_a_limit_of_the_servers(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = dataclasses.replace(running.settings.limits, tokens=5)
    core = running.server.core
    monkeypatch.setattr(core, "settings", dataclasses.replace(core.settings, limits=limits))
    _, found, _ = running.call("POST", CHAT, wrong())
    assert found["usage"]["completion_tokens"] == 5
    assert running.call("POST", CHAT, wrong(max_tokens=6))[0] == 400


@pytest.mark.parametrize(("name", "text", "words"), [
    ("tokenizer.json", None, "no tokenizer.json"),
    ("tokenizer.json", "{}", "is no tokenizer"),
    ("model.onnx", None, "does not exist"),
    ("genai_config.json", "[", "is no JSON"),
    ("genai_config.json", '{"model": {"type": "marian-ssru", "decoder": {}}}', "a recurrent"),
    ("genai_config.json", '{"model": {"type": "thing", "decoder": {}}}', "nobody knows"),
    ("outside", "link", "outside of"),
])  # fmt: skip
def test_bad_folders_are_refused(
    running: Running, tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    folder = folder_with(Path(running.settings.source) / "bad")
    try:
        if text is None:
            (folder / name).unlink()
        elif text == "link":
            (folder / name).symlink_to(tmp_path)
        else:
            (folder / name).write_text(text)
        status, found, _ = running.call("POST", "/v2/repository/models/bad/load", b"")
        assert (status, words in found["error"]) == (503, True), found
        status, found, _ = running.call("POST", CHAT, wrong(model="bad"))
        assert (status, words in found["error"]["message"]) == (503, True), found
    finally:
        shutil.rmtree(folder)
        running.server.core.repository.entries.pop("bad", None)


def test_texts_of_a_step_are_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Noted(Engine):
        def __init__(self, model: Any, **how: Any) -> None:
            made.append(how["max_batch_size"])
            super().__init__(model, **how)

    monkeypatch.setattr("tenonnx_serve.openai.engine_thread.Engine", Noted)
    root = tmp_path / "models"
    said = 'parameters { key: "rows" value { string_value: "%s" } }'
    for name in ("a", "b", "c"):
        folder = root / name / "1" if name == "b" else root / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder_with(folder)
        if name != "a":
            (root / name / "config.pbtxt").write_text(said % 2)
    with serving(
        Settings(str(root), port=0, grpc_port=None, rows=3, access=Access(control=True))
    ) as server:
        assert made == [3, 2, 2]
        asked = {"prompt": ["a", "b", "c"], "max_tokens": 3}
        for name in ("a", "b"):
            status, found, _ = server.call("POST", COMPLETIONS, {"model": name, **asked})
            assert (status, len(found["choices"])) == (200, 3)
        for wrong_one in ("0", "1025", "many", "9" * 5000):
            (root / "c" / "config.pbtxt").write_text(said % wrong_one)
            status, found, _ = server.call("POST", "/v2/repository/models/c/load", b"")
            assert (status, "expected 1 to 1024" in found["error"]) == (503, True)


@pytest.mark.parametrize(("template", "words"), [
    ("{% for %}", "wrong in line 1"),
    ("{{ 1 / 0 }}", "the chat template fails"),
    ("{{ raise_exception('no such role') }}", "no such role"),
])  # fmt: skip
def test_bad_templates_are_told(running: Running, template: str, words: str) -> None:
    file = Path(running.settings.source) / "tiny" / "chat_template.jinja"
    file.write_text(template)
    try:
        status, found, _ = running.call("POST", CHAT, wrong())
        assert (status, words in found["error"]["message"]) == (400, True), found
    finally:
        file.write_text(TEMPLATE)


def test_without_tenonnx_generate_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "tenonnx_serve.openai.language_model", raising=False)
    monkeypatch.setitem(sys.modules, "tenonnx_generate", None)
    found: Any = SimpleNamespace(name="chat")
    with pytest.raises(EPFail, match="'chat' needs tenonnx-generate") as caught:
        Repository._language_model(found, found, 1, None)
    assert caught.value.hint == "pip install tenonnx-generate"
