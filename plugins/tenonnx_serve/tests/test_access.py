"""Tokens and TLS, over REST and gRPC, and the server's warnings."""

from __future__ import annotations

import contextlib
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

from servers import Running, double, serving
from tenonnx.errors import InvalidArgument
from tenonnx_serve.access import Access, Gate, check_host, check_origin, hosts_of, warning
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


def test_a_scheme_has_no_case() -> None:
    for given in (b"bearer abc", b"BEARER  abc "):
        Gate(b"abc").check("/", given)
    for given in (b"Basic abc", b"abc", b"Bearer", b""):
        with pytest.raises(Unauthorized):
            Gate(b"abc").check("/", given)


@pytest.mark.parametrize(
    ("host", "allowed", "given", "passes"),
    [
        ("127.0.0.1", (), b"localhost:8000", True),
        ("127.0.0.1", (), b"LOCALHOST", True),
        ("127.0.0.1", (), b"127.0.0.1:8000", True),
        ("::1", (), b"[::1]:8000", True),
        ("::1", (), b"[::1]", True),
        ("127.0.0.1", (), b"", True),  # of HTTP/1.0, which browsers do not send
        # A name that somebody makes lead to this machine is the page's host and the server's.
        ("127.0.0.1", (), b"evil.example:8000", False),
        ("127.0.0.1", (), b"localhost.evil.example", False),
        ("127.0.0.1", ("models.example",), b"models.example", True),
        ("0.0.0.0", (), b"models.example", True),
        ("0.0.0.0", ("models.example",), b"evil.example", False),
    ],
)
def test_names_of_the_server(
    host: str, allowed: tuple[str, ...], given: bytes, passes: bool
) -> None:
    with contextlib.nullcontext() if passes else pytest.raises(Forbidden, match="--allowed-host"):
        check_host(given, hosts_of(host, allowed))


@pytest.mark.parametrize("origin", [b"http://evil.example", b"null", b"http://localhost:1"])
def test_pages_of_others_are_refused(origin: bytes) -> None:
    check_origin(b"http://localhost:8000", b"localhost:8000")
    with pytest.raises(Forbidden):
        check_origin(origin, b"localhost:8000")


@pytest.mark.parametrize("short", [False, True])
def test_every_path_checks_host_and_origin(tmp_path: Path, short: bool) -> None:
    settings = Settings(str(double(tmp_path / "m.onnx")), port=0, grpc_port=None)
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    with serving(settings) as running:
        for _ in range(5 * short):  # then the event loop answers
            assert running.call("POST", "/v2/models/m/infer", {"inputs": [tensor]})[0] == 200
        for wrong in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            for path in ("/", "/metrics", "/v2/models/m", "/v1/models"):
                assert running.call("GET", path, headers=wrong)[0] == 403
            found = running.call("POST", "/v2/models/m/infer", {"inputs": [tensor]}, wrong)
            assert found[0] == 403


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


def test_nobody_controls_a_server_unless_its_operator_says_who(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("a-second_word")
    root = tmp_path / "models"
    double(root / "m" / "1" / "model.onnx")
    load, log = "/v2/repository/models/m/load", "/v2/logging"
    for access, words in [
        (Access(), "--control"),
        (Access(control_token_file=str(tmp_path / "word")), "control token"),
    ]:
        with serving(Settings(str(root), port=0, grpc_port=0, access=access)) as server:
            for path, said in ((load, b""), (load.replace("load", "unload"), b""), (log, {})):
                status, found, _ = server.call("POST", path, said, {"Authorization": "Bearer x"})
                assert (status, words in found["error"]) == (403, True)
            assert server.call("GET", log)[0] == 200
            assert server.call("POST", "/v2/repository/index", b"")[0] == 200
            with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
                for call in (
                    lambda client=client: client.load_model("m"),
                    lambda client=client: client.unload_model("m"),
                    lambda client=client: client.update_log_settings({"log_info": True}),
                ):
                    with pytest.raises(InferenceServerException) as raised:
                        call()
                    assert raised.value.status() == "StatusCode.PERMISSION_DENIED"
                assert client.get_log_settings()
                if access.control_token_file:
                    right = {"authorization": "Bearer a-second_word"}
                    client.load_model("m", headers=right)
                    assert server.call("POST", load, b"", right)[0] == 200


def test_a_browser_sees_the_page_with_a_cookie(files: Path) -> None:
    access = Access(token_file=str(files / "token"))
    with serving(Settings(str(files / "m.onnx"), port=0, grpc_port=None, access=access)) as server:
        status, page, headers = server.call("GET", "/")
        assert (status, b'action="/login"' in page) == (401, True)
        assert "form-action 'self'" in headers["content-security-policy"]
        for wrong in (b"token=x", b"", b"token=" + b"x" * 9000):
            assert server.call("POST", "/login", wrong)[0] in (401, 413)
        status, _, headers = server.call("POST", "/login", f"token={TOKEN}".encode())
        assert (status, headers["location"]) == (303, "/")
        cookie, *flags = headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict"} <= set(flags)
        assert TOKEN not in cookie
        seen = {"Cookie": f"other=1; {cookie}"}
        assert server.call("GET", "/", None, seen)[0] in (200, 404)  # the page is a worker's
        for method, path in (("GET", "/v2/models/m"), ("POST", "/v2/models/m/infer")):
            assert server.call(method, path, None, seen)[0] == 401
        assert server.call("POST", "/", b"", seen)[0] == 401
        assert server.call("GET", "/", None, {"Cookie": cookie[:-1] + "g"})[0] == 401
