"""OpenAI's Responses API: the same answers as chats, whole and as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
pytest.importorskip("llguidance", reason="tenonnx-generate is not installed")

from folders import TEMPLATE
from language import CHAT, folder_with
from servers import Running, serving
from tenonnx_serve.settings import Limits, Settings

PATH = "/v1/responses"
PARAMETERS = {
    "type": "object",
    "properties": {"place": {"enum": ["Bern", "Rome"]}},
    "required": ["place"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": True}
TOOLS = TEMPLATE.replace(
    "{% for", "{% for t in tools or [] %}<tool_call>{{ t.function.name }}{% endfor %}{% for", 1
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    folder_with(root / "tiny")
    folder_with(root / "tools", TOOLS)
    limits = Limits(waiting=4, seconds=20)
    with serving(Settings(str(root), port=0, grpc_port=None, limits=limits)) as found:
        yield found


def respond(running: Running, **asked: Any) -> Any:
    status, found, _ = running.call("POST", PATH, {"model": "tiny", "temperature": 0, **asked})
    assert status == 200, found
    return found


def events(running: Running, **asked: Any) -> list[Any]:
    said = {"model": "tiny", "temperature": 0, "stream": True, **asked}
    status, body, _ = running.call("POST", PATH, said)
    assert status == 200, body
    *parts, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    found = []
    for part in parts:
        name, data = part.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    return found


def test_messages_are_answered_as_in_chats(running: Running) -> None:
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "yes", "id": 1}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "so"}]},
    ]
    found = respond(running, input=talk, instructions="be brief", max_output_tokens=9)
    chat = [{"role": "system", "content": "be brief"}, talk[0]]
    chat += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "so"}]
    said = {"model": "tiny", "messages": chat, "max_tokens": 9, "temperature": 0}
    _, expected, _ = running.call("POST", CHAT, said)
    (item,) = found["output"]
    assert item["content"][0]["text"] == expected["choices"][0]["message"]["content"]
    assert (found["status"], found["incomplete_details"]["reason"]) == (
        "incomplete", "max_output_tokens",
    )  # fmt: skip
    assert found["usage"]["total_tokens"] == expected["usage"]["total_tokens"]


def test_events_say_what_the_whole_answer_says(running: Running) -> None:
    asked = {"input": "hi", "max_output_tokens": 9}
    whole, told = respond(running, **asked), events(running, **asked)
    kinds = [each["type"] for each in told]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added",
    ]  # fmt: skip
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.incomplete",
    ]  # fmt: skip
    text = "".join(each["delta"] for each in told if each["type"].endswith("text.delta"))
    assert text == whole["output"][0]["content"][0]["text"]
    last = told[-1]["response"]
    changing = {"id": "", "created_at": 0, "output": []}
    assert last | changing == whole | changing
    assert last["output"][0]["content"] == whole["output"][0]["content"]


def test_functions_are_called_and_their_results_read(running: Running) -> None:
    asked = {"model": "tools", "input": "hi", "tools": [WEATHER], "tool_choice": "required"}
    asked |= {"parallel_tool_calls": False, "max_output_tokens": 80}
    found = respond(running, **asked)
    (call,) = found["output"]
    assert (call["type"], call["name"], found["status"]) == (
        "function_call", "weather", "completed"
    )  # fmt: skip
    assert json.loads(call["arguments"])["place"] in ("Bern", "Rome")
    told = events(running, **asked)
    assert "response.function_call_arguments.done" in [each["type"] for each in told]
    assert told[-1]["response"]["output"][0]["arguments"] == call["arguments"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "warm"}
    again = [{"role": "user", "content": "hi"}, call, result]
    assert respond(running, model="tools", input=again, tools=[WEATHER], max_output_tokens=5)


def test_answers_keep_to_a_schema(running: Running) -> None:
    form = {"type": "json_schema", "name": "x", "schema": PARAMETERS}
    found = respond(running, input="hi", text={"format": form})
    assert json.loads(found["output"][0]["content"][0]["text"])["place"] in ("Bern", "Rome")


@pytest.mark.parametrize(("asked", "status", "words"), [
    ({"previous_response_id": "resp_1"}, 400, "previous_response_id"),
    ({"input": [{"type": "item_reference"}]}, 400, "expected a message"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, 400, "text alone"),
    ({"tools": [{"type": "web_search"}]}, 400, "expected a function"),
    ({"model": "none"}, 404, "does not exist"),
    ({"max_tokens": 3}, 400, "unknown field"),
])  # fmt: skip
def test_requests_that_cannot_be(running: Running, asked: Any, status: int, words: str) -> None:
    found, answer, _ = running.call("POST", PATH, {"model": "tiny", "input": "hi", **asked})
    assert words in answer["error"]["message"]
    assert found == status
