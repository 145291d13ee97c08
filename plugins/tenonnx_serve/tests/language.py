"""Language models for tests of OpenAI's API, and its streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from folders import TEMPLATE, write_folder
from servers import Running

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def folder_with(path: Path, template: str = TEMPLATE, **model: Any) -> Path:
    write_folder(path, model={"context_length": 512, **model}, search={"max_length": 512})
    (path / "chat_template.jinja").write_text(template)
    return path


def events(running: Running, path: str, said: dict[str, Any]) -> list[Any]:
    status, body, headers = running.call("POST", path, {**said, "stream": True})
    assert status == 200, body
    assert headers["content-type"] == "text/event-stream"
    parts = body.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]
