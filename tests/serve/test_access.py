"""Tokens and TLS, over REST and gRPC, and the server's warnings."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

import grpc
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from serve.servers import Running, double, serving
from tenonnx.errors import InvalidArgument
from tenonnx_serve.access import Access, Gate, check_origin, warning
from tenonnx_serve.errors import Forbidden, Unauthorized
from tenonnx_serve.settings import Settings

TOKEN = "a-word.that_nobody~knows"

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl, which makes a certificate, is not here"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("access")
    double(folder / "m.onnx")
    (folder / "token").write_text(f"{TOKEN}\n")
    if shutil.which("openssl") is not None:
        command = (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        )
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        made = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
        subprocess.run([*command.split(), *names, *made], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def running(files: Path) -> Iterator[Running]:
    """A server that speaks TLS and asks for a token."""
    access = Access(str(files / "cert.pem"), str(files / "key.pem"), str(files / "token"))
    with serving(Settings(str(files / "m.onnx"), port=0, grpc_port=0, access=access)) as found:
        yield found


def ask(running: Running, files: Path, path: str, token: str | None) -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=str(files / "cert.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", running.port, context=context)
    headers = {} if token is None else {"Authorization": token}
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@needs_openssl
def test_rest_asks_for_the_token(running: Running, files: Path) -> None:
    assert ask(running, files, "/v2/models/m", f"Bearer {TOKEN}")[0] == 200
    for wrong in (None, "", TOKEN, f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}"):
        status, said = ask(running, files, "/v2/models/m", wrong)
        assert status == 401
        assert TOKEN not in said["error"]
    # Probes bring no token.
    assert ask(running, files, "/v2/health/live", None)[0] == 200
    assert ask(running, files, "/v2/health/ready", None)[0] == 200


@needs_openssl
def test_no_plain_http_is_answered(running: Running) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        running.call("GET", "/v2/health/live")


@needs_openssl
def test_grpc_asks_for_the_token(running: Running, files: Path) -> None:
    certificate = (files / "cert.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials(certificate)
    address = running.grpc_address
    with tritonclient.grpc.InferenceServerClient(address, creds=credentials, ssl=True) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        right = {"authorization": f"Bearer {TOKEN}"}
        assert client.get_model_metadata("m", headers=right).name == "m"
        for wrong in (None, {"authorization": "Bearer x"}):
            with pytest.raises(InferenceServerException) as raised:
                client.get_model_metadata("m", headers=wrong)
            assert raised.value.status() == "StatusCode.UNAUTHENTICATED"
            with pytest.raises(InferenceServerException, match="token"):
                client.load_model("m", headers=wrong)


def test_a_gate_compares_all_of_a_header() -> None:
    gate = Gate(b"abc")
    gate.check("/v2/models/m", b"Bearer abc")
    gate.check("/v2/health/ready", None)
    for path in ("/v2/health/ready/", "/v2/health/../models/m", "/", "/metrics"):
        with pytest.raises(Unauthorized):
            gate.check(path, b"Bearer ab")


@pytest.mark.parametrize(
    ("path", "origin", "local", "passes"),
    [
        ("/v2/repository/models/m/load", b"http://localhost:8000", True, True),
        ("/v2/repository/models/m/load", b"http://evil.example", True, False),
        ("/v2/repository/models/m/load", b"null", True, False),
        # A name that somebody makes lead to this machine is the page's host and the server's.
        ("/v2/repository/models/m/load", b"http://evil.example:8000", True, False),
        ("/v2/repository/models/m/load", b"http://models.example:8000", False, True),
        ("/v2/models/m/infer", b"http://evil.example", True, True),
    ],
)
def test_pages_of_others_change_nothing(
    path: str, origin: bytes, local: bool, passes: bool
) -> None:
    asking = origin.partition(b"://")[2]
    host = asking if asking.endswith(b":8000") else b"localhost:8000"
    if passes:
        check_origin(path, origin, host, local)
    else:
        with pytest.raises(Forbidden):
            check_origin(path, origin, host, local)


@pytest.mark.parametrize("text", ["", "\n", "two words", "ü"])
def test_a_token_is_one_word(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(InvalidArgument, match="one word"):
        Access(token_file=str(tmp_path / "token")).check()


def test_what_cannot_be_read_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="--token-file"):
        Access(token_file=str(tmp_path / "none")).check()
    with pytest.raises(InvalidArgument, match="--tls-cert"):
        Access(certificate=str(tmp_path / "none"), key=str(tmp_path / "none")).check()
    with pytest.raises(InvalidArgument, match="both"):
        Access(certificate="c")


def test_what_is_dangerous_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENONNX_SERVE_TOKEN", raising=False)
    assert warning("127.0.0.1", Access()) == ""
    assert "no token" in warning("0.0.0.0", Access())
    monkeypatch.setenv("TENONNX_SERVE_TOKEN", TOKEN)
    assert "no TLS" in warning("::", Access())
    assert warning("10.0.0.1", Access(certificate="c", key="k")) == ""
