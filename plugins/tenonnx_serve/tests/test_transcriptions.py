"""OpenAI's API for sounds, of a tiny model over plain HTTP."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msgspec", reason="tenonnx-serve is not installed")
pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")


from encoders import sweep, write_encoded, write_wave
from folders import write_folder
from servers import Running, serving
from tenonnx.process import interruption
from tenonnx_generate import Audios, Model
from tenonnx_generate.transcribing import Transcriber
from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.transcriptions import MOST_PARTS, parsed
from tenonnx_serve.settings import Limits, Settings

PATH = "/v1/audio/transcriptions"
TYPE = b"multipart/form-data; boundary=xyz"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    write_encoded(root / "speech")
    write_encoded(root / "aligned", aligned=True)
    write_folder(root / "tiny")
    limits = Limits(body=200_000, seconds=20)
    with serving(Settings(str(root), port=0, grpc_port=None, limits=limits)) as found:
        yield found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_wave(tmp_path_factory.mktemp("sound") / "a.wav", sweep(2.3)).read_bytes()


def form(fields: dict[str, bytes]) -> bytes:
    parts = []
    for name, content in fields.items():
        kind = '; filename="a.wav"\r\nContent-Type: audio/wav' if name == "file" else ""
        head = f'Content-Disposition: form-data; name="{name}"{kind}'
        parts.append(b"--xyz\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n")
    return b"".join(parts) + b"--xyz--\r\n"


def asked(running: Running, **fields: bytes) -> tuple[int, Any]:
    headers = {"Content-Type": TYPE.decode()}
    return running.call("POST", PATH, form(fields), headers)[:2]


def test_a_sound_is_transcribed(running: Running, sound: bytes) -> None:
    model = Model(Path(running.settings.source) / "speech")
    made = Transcriber(model, {}, language="fr", before="and then")
    (clip,) = Audios.open_bytes(sound)
    texts = ["".join(made.piece(clip, number, 99)) for number in range(3)]
    fields = {"model": b"speech", "file": sound, "language": b"fr", "prompt": b"and then"}
    whole = "".join(texts).strip()
    assert asked(running, **fields) == (200, {"text": whole})
    status, said = asked(running, **fields, response_format=b"verbose_json")
    assert status == 200
    assert (said["language"], said["duration"], said["text"]) == ("fr", 2.3, whole)
    assert [each["text"] for each in said["segments"]] == texts
    assert [each["end"] for each in said["segments"]] == [1, 2, 2.3]
    status, said = asked(running, **fields, response_format=b"text")
    assert (status, said.decode()) == (200, whole + "\n")
    options = {"stream": b"False", "timestamp_granularities[]": b"segment"}
    status, said = asked(running, **fields, **options, response_format=b"srt")
    blocks = said.decode().split("\n\n")
    assert (status, len(blocks)) == (200, 3)
    assert blocks[0].split("\n")[:2] == ["1", "00:00:00,000 --> 00:00:01,000"]
    assert blocks[2].split("\n")[:2] == ["3", "00:00:02,000 --> 00:00:02,300"]
    status, said = asked(running, **fields, response_format=b"vtt")
    assert said.decode().startswith("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n")
    status, found, _ = running.call("GET", "/v1/models/speech")
    assert (status, found["id"]) == (200, "speech")


def test_a_transcript_is_streamed(running: Running, sound: bytes) -> None:
    fields = {"model": b"speech", "file": sound, "language": b"fr"}
    whole = asked(running, **fields)[1]["text"]
    status, body = asked(running, **fields, stream=b"true")
    parts = body.decode().split("\n\n")
    assert (status, parts[-2:]) == (200, ["data: [DONE]", ""])
    *deltas, done = [json.loads(part.partition("data: ")[2]) for part in parts[:-2]]
    assert done == {"type": "transcript.text.done", "text": whole}
    assert {each["type"] for each in deltas} == {"transcript.text.delta"}
    assert "".join(each["delta"] for each in deltas).strip() == whole
    assert len(deltas) > 3


def test_a_client_that_leaves_a_stream_stops_its_transcript(
    running: Running, sound: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def piece(*_: Any) -> Iterator[str]:
        try:
            while True:
                interruption.check()
                yield "word "
        finally:
            ended.set()

    monkeypatch.setattr(Transcriber, "piece", piece)
    body = form({"model": b"speech", "file": sound, "stream": b"true"})
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {TYPE.decode()}\r\n"
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert b"200 OK" in client.recv(1000)
        assert not ended.is_set()
    assert ended.wait(20)


@pytest.mark.parametrize(("changes", "status", "said"), [
    ({"file": b""}, 400, "has no file"),
    ({"file": b"RIFF"}, 400, "is no WAV file of whole numbers"),
    ({"language": b"xx"}, 400, "no token <|xx|>"),
    ({"language": b"English"}, 400, "language"),
    ({"temperature": b"hot"}, 400, "temperature"),
    ({"temperature": b"2"}, 400, "temperature"),
    ({"response_format": b"ass"}, 400, "response_format"),
    ({"timestamp_granularities[]": b"word"}, 400, "in verbose_json alone"),
    ({"timestamp_granularities[]": b"word", "response_format": b"verbose_json"}, 400,
     "no such output"),
    ({"timestamp_granularities[]": b"day"}, 400, "timestamp_granularities"),
    ({"others[]": b"day"}, 400, "unknown field 'others'"),
    ({"stream": b"true", "response_format": b"srt"}, 400, "stream"),
    ({"stream": b"true", "file": b"RIFF"}, 400, "is no WAV file of whole numbers"),
    ({"surprise": b"1"}, 400, "surprise"),
    ({"prompt": b"\xff"}, 400, "not UTF-8"),
    ({"model": b"nothing"}, 404, "'nothing' does not exist"),
    ({"model": b"tiny"}, 400, "takes texts"),
    ({"file": bytes(300_000)}, 413, "larger than the limit"),
])  # fmt: skip
def test_requests_that_cannot_be(
    running: Running, sound: bytes, changes: dict[str, bytes], status: int, said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "soundfile", None)
    found, answer = asked(running, **{"model": b"speech", "file": sound} | changes)
    assert said in answer["error"]["message"]
    assert found == status


def test_texts_for_a_model_of_sounds(running: Running) -> None:
    for path, body in [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    ]:
        status, said, _ = running.call("POST", path, {"model": "speech", **body})
        assert status == 400
        assert "takes sounds, at /v1/audio/transcriptions" in said["error"]["message"]


WHOLE = form({"model": b"m", "file": b"f"})


@pytest.mark.parametrize(("body", "kind", "said"), [
    (WHOLE, b"application/json", "no multipart/form-data"),
    (WHOLE, b"multipart/form-data", "with a boundary"),
    (WHOLE, b"multipart/form-data; boundary=other", "the form has no end"),
    (WHOLE[:-6], TYPE, "the form has no end"),
    (b"", TYPE, "the form has no end"),
    (b"--xyz\r\nno head\r\n--xyz--\r\n", TYPE, "has no head"),
    (b"--xyz\r\nX: 1\r\n\r\n1\r\n--xyz--\r\n", TYPE, "has no name"),
    (WHOLE.replace(b'"model"', b'"file"'), TYPE, "has 'file' twice"),
    (b"--xyz\r\n" * (MOST_PARTS + 5), TYPE, f"more than {MOST_PARTS} parts"),
    (b"--xyz\r\n" + b"X" * 9000 + b"\r\n\r\n--xyz--", TYPE, "has no head"),
])  # fmt: skip
def test_forms_that_cannot_be(body: bytes, kind: bytes, said: str) -> None:
    with pytest.raises(Wrong, match=said):
        parsed(body, kind)


def test_contents_with_boundaries_in_them() -> None:
    content = b"--xyz\r\n\r\n--xy\r\n-- xyz"
    found = parsed(form({"model": b"m", "file": content[7:]}), TYPE)
    assert found.file == content[7:]


def test_words_have_times(running: Running, sound: bytes) -> None:
    fields = {"model": b"aligned", "file": sound, "language": b"en"}
    options = {"response_format": b"verbose_json", "timestamp_granularities[]": b"word"}
    status, said = asked(running, **fields, **options)
    assert status == 200, said
    made = Transcriber(Model(Path(running.settings.source) / "aligned"), {}, language="en")
    (clip,) = Audios.open_bytes(sound)
    expected = []
    for number in range(3):
        list(made.piece(clip, number, 99))
        expected += made.words(clip, number)
    assert said["words"] == [
        {"word": word.text.strip(), "start": word.start, "end": word.end} for word in expected
    ]
    assert said["segments"]
    status, plain = asked(running, **fields, response_format=b"verbose_json")
    assert (status, "words" in plain) == (200, False)
