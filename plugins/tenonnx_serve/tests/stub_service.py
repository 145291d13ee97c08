"""A service for tests of workers alone: it answers with the word in a model's file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenonnx.errors import InvalidArgument
from tenonnx_serve import sockets
from tenonnx_serve.worker import SupervisorControl


class Stub:
    """Answers ``GET /NAME`` with a model's word and what takes it, one request a connection.

    A word's file may be ``WORD``, ``sleep WORD`` (each answer takes 0.3 s), ``fail`` (it cannot
    be loaded) or ``fail N`` (by worker N); ``die N`` ends worker N while it loads it.
    """

    def __init__(self, control: SupervisorControl) -> None:
        self.control = control
        self.words: dict[str, str] = {}
        self.ready: set[str] = set()
        self.all_ready = False
        self.requests = self.slow = 0
        self.number = int(os.environ["TENONNX_SERVE_WORKER"])
        self.busy: set[asyncio.Task[Any]] = set()
        self.server: asyncio.Server | None = None

    async def start(
        self, settings: dict[str, Any], models: Mapping[str, Mapping[str, Any]] | None
    ) -> dict[str, str]:
        self.folder, self.settings = Path(settings["source"]), settings
        names = [path.name for path in self.folder.iterdir()] if models is None else list(models)
        digests = {}
        for name in names:
            self.words[name], digests[name] = self._read(name)
            self.ready.add(name)
        if (self.folder.parent / "crash").exists():
            os._exit(3)
        return digests

    def _read(self, name: str) -> tuple[str, str]:
        path = self.folder / name
        if not path.is_file():
            raise InvalidArgument(f"there is no model {name}")
        text = path.read_text()
        verb, _, who = text.partition(" ")
        if verb == "fail" and who in ("", str(self.number)):
            raise InvalidArgument(f"model {name} is damaged", hint="mend it")
        if text == f"die {self.number}":
            os._exit(7)
        return text, hashlib.sha256(text.encode()).hexdigest()

    async def listen(self) -> None:
        made = sockets.listening(self.settings["host"], self.settings["port"])
        self.server = await asyncio.start_server(self._connected, sock=made)

    def agreed(self) -> None:
        self.all_ready = True

    async def prepare(self, action: str, name: str, parameters: dict[str, Any]) -> tuple[Any, str]:
        if action == "load":
            await asyncio.sleep(parameters.get("sleep", 0))
            word, digest = self._read(name)
            return (name, word), digest
        if name not in self.words:
            raise InvalidArgument(f"{name} is not loaded")
        self.ready.discard(name)
        return (name, None), ""

    def commit(self, prepared: Any) -> None:
        name, word = prepared
        if word is None:
            del self.words[name]
        else:
            self.words[name] = word

    def settle(self, prepared: Any) -> None:
        if prepared[1] is not None:
            self.ready.add(prepared[0])

    def discard(self, prepared: Any) -> None:
        if prepared[1] is None:
            self.ready.add(prepared[0])

    def switch(self, asked: dict[str, Any]) -> None:
        del asked

    async def snapshot(self) -> dict[str, Any]:
        counted = {"requests": self.requests, "slow": self.slow}
        return {"counted": counted, "now": {"models": sorted(self.words)}}

    async def drain(self, seconds: float) -> None:
        if self.server is not None:
            self.server.close()
        if self.busy:
            await asyncio.wait(self.busy, timeout=seconds)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.busy.add(task)
        try:
            line = (await reader.readline()).decode()
            if line:
                answer = json.dumps(await self._answer(line.split()[1])).encode()
                writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + answer)
                await writer.drain()
        finally:
            self.busy.discard(task)
            writer.close()

    async def _answer(self, path: str) -> Any:
        _, name, *rest = path.split("/")
        self.requests += 1
        if name == "change":
            action, model, *parameters = rest
            try:
                given = {"sleep": float(parameters[0])} if parameters else {}
                await self.control.change(action, model, given)
            except Exception as error:
                return {"error": str(error)}
            return {}
        if name == "collect":
            return await self.control.collect()
        if name == "spin":
            time.sleep(float(rest[0]))
            return {}
        if name == "burn":
            until = time.monotonic() + float(rest[0])
            while time.monotonic() < until:
                pass
        word = self.words.get(name)
        if word and word.startswith("sleep"):
            self.slow += 1
            await asyncio.sleep(0.3)
        told = {"word": word, "worker": self.number, "pid": os.getpid()}
        return told | {"ready": name in self.ready, "all": self.all_ready}
