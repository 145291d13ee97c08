"""Clients that ask a server again and again while something happens to it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# Errors of a client whose worker dies.
LOST = (OSError, http.client.HTTPException)

ROW = [1.0, 2.0, 3.0, 4.0]


@dataclass
class Told:
    """The answers that clients got.

    Attributes:
        answers: How often each answer came.
        lost: Connections that ended in place of an answer.
        refused: Answers that are no success.
    """

    answers: dict[tuple[float, ...], int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    refused: list[tuple[int, Any]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of answers."""
        return sum(self.answers.values())


def question(row: Sequence[float] = ROW) -> bytes:
    """Return the body of a request of one row."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, len(row)], "data": list(row)}
    return json.dumps({"inputs": [tensor]}).encode()


@contextmanager
def asked(port: int, model: str, clients: int) -> Iterator[Told]:
    """Have clients ask a model of one row until the block ends; each keeps its connection."""
    told, stopping, lock = Told(), threading.Event(), threading.Lock()
    path, body = f"/v2/models/{model}/infer", question()

    def ask() -> None:
        connection: http.client.HTTPConnection | None = None
        while not stopping.is_set():
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                connection.request("POST", path, body)
                answer = connection.getresponse()
                said = json.loads(answer.read())
            except LOST as error:
                told.lost.append(repr(error))
                connection.close()
                connection = None
                continue
            if answer.status != 200:
                told.refused.append((answer.status, said))
                continue
            found = tuple(said["outputs"][0]["data"])
            with lock:
                told.answers[found] = told.answers.get(found, 0) + 1
        if connection is not None:
            connection.close()

    with ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(ask) for _ in range(clients)]
        try:
            yield told
        finally:
            stopping.set()
            for each in asking:
                each.result()
