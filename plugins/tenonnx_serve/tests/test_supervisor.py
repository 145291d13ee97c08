"""The supervisor, over services that are not the server: processes, agreement, draining."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

from supervised import Supervised, supervised, wait_for
from tenonnx_serve import heartbeat
from tenonnx_serve.channel import ChannelClosed
from tenonnx_serve.processes import spawn

LOST = (OSError, HTTPException, urllib.error.URLError)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Supervised, Path]]:
    """Two workers over a folder of words."""
    folder = tmp_path_factory.mktemp("words") / "repository"
    folder.mkdir()
    (folder / "steady").write_text("steady")
    (folder / "slow").write_text("sleep well")
    with supervised(folder) as server:
        yield server, folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    """Two workers that may be silent for a second."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "a").write_text("a")
    with supervised(folder, idle=1) as server:
        yield server


def back(server: Supervised, workers: int = 2) -> bool:
    try:
        return sum(each["serving"] for each in server.workers().values()) == workers
    except LOST:
        return False


def replace(path: Path, text: str) -> None:
    """Write a file that workers may be reading, at once: they meet no empty one."""
    made = path.parent.parent / f"{path.name}.new"
    made.write_text(text)
    made.replace(path)


def pids(server: Supervised) -> list[int]:
    return [worker["pid"] for worker in server.workers().values()]


def test_a_killed_worker_is_back_and_others_go_on(
    pair: tuple[Supervised, Path],
) -> None:
    server, _ = pair
    wait_for(lambda: back(server))
    errors: list[str] = []
    stopping = threading.Event()

    def ask() -> int:
        answered = 0
        while not stopping.is_set():
            try:
                assert server.get("steady")["word"] == "steady"
                answered += 1
            except LOST as error:
                errors.append(repr(error))
        return answered

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        time.sleep(0.2)
        victim = server.get("steady")["pid"]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: back(server) and victim not in pids(server))
        stopping.set()
        assert sum(each.result() for each in asking) > 20
    # Of each client the request that the worker had, and one that came to it while it died:
    # its connections are closed one by one, and the socket that it listens on is one of them.
    assert len(errors) <= 2 * 4, errors


def test_a_load_reaches_all_workers(pair: tuple[Supervised, Path]) -> None:
    server, folder = pair
    (folder / "new").write_text("one")
    assert server.change("load", "new") == ""
    assert server.words("new", 2) == {0: "one", 1: "one"}
    answer = server.get("new")
    assert answer["ready"]
    assert answer["all"]
    (folder / "new").write_text("two")
    assert server.words("new", 2) == {0: "one", 1: "one"}
    assert server.change("load", "new") == ""
    assert server.words("new", 2) == {0: "two", 1: "two"}
    assert server.change("unload", "new") == ""
    assert server.words("new", 2) == {0: None, 1: None}
    assert "not loaded" in server.change("unload", "new")


@pytest.mark.parametrize("who", ["fail", "fail 0", "fail 1"])
def test_a_load_that_one_cannot_do_is_done_by_none(pair: tuple[Supervised, Path], who: str) -> None:
    server, folder = pair
    (folder / "torn").write_text("whole")
    assert server.change("load", "torn") == ""
    (folder / "torn").write_text(who)
    assert server.change("load", "torn") == "model torn is damaged\nHint: mend it"
    assert server.words("torn", 2) == {0: "whole", 1: "whole"}
    assert server.get("torn")["ready"]
    (folder / "torn").write_text("whole")  # workers that start later read it


def test_a_worker_that_dies_while_it_loads_does_not_stop_the_others(
    pair: tuple[Supervised, Path],
) -> None:
    """Its replacement has what was decided, of the file that is there by then."""
    server, folder = pair
    replace(folder / "deadly", "mild")
    assert server.change("load", "deadly") == ""
    dying = 1 - server.get("deadly")["worker"]
    replace(folder / "deadly", f"die {dying}")

    def change() -> str:  # by the worker that lives
        while True:
            with contextlib.suppress(*LOST):
                if server.get("deadly")["worker"] != dying:
                    return server.change("load", "deadly")

    # Connections are given out by chance: the request may have gone to the one that dies.
    assert change() in ("", "there is no model deadly")
    replace(folder / "deadly", "mended")
    wait_for(lambda: back(server))
    assert server.words("deadly", 2) == {0: "mended", 1: "mended"}


def test_a_worker_that_has_gone_takes_no_requests() -> None:
    """Also before its end is told: until then nobody may count on it."""

    async def main() -> None:
        worker = await spawn(0, "stub_service:Stub", 1, {})
        worker.serving_since = time.monotonic()
        assert worker.serving
        worker.kill()
        with pytest.raises(ChannelClosed):
            await worker.call("snapshot")
        assert not worker.serving
        assert "SIGKILL" in await worker.ended()

    asyncio.run(main())


def test_counts_of_the_dead_are_kept(pair: tuple[Supervised, Path]) -> None:
    server, _ = pair
    wait_for(lambda: back(server))
    before = server.total("requests")
    os.kill(server.get("steady")["pid"], signal.SIGKILL)
    wait_for(lambda: back(server))
    assert server.total("requests") >= before


def test_a_worker_told_to_end_finishes_what_it_does(pair: tuple[Supervised, Path]) -> None:
    server, _ = pair
    wait_for(lambda: back(server))
    begun = server.total("slow")
    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(server.get, "slow") for _ in range(8)]
        wait_for(lambda: server.total("slow") == begun + 8)
        os.kill(server.get("steady")["pid"], signal.SIGTERM)
        assert {each.result()["word"] for each in asking} == {"sleep well"}
    wait_for(lambda: back(server))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_finishes_what_is_in_flight(tmp_path: Path, number: int) -> None:
    (tmp_path / "slow").write_text("sleep tight")
    with supervised(tmp_path) as server, ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(server.get, "slow") for _ in range(4)]
        wait_for(lambda: server.total("slow") == 4)
        server.process.send_signal(number)
        assert {each.result()["word"] for each in asking} == {"sleep tight"}
        assert server.process.wait(10) == 0


def test_a_request_beyond_the_limit_does_not_hold_the_server_up(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with supervised(tmp_path, 1, drain=0.2) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.get, "spin/30").add_done_callback(lambda done: done.exception())
        time.sleep(0.2)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.monotonic() - start < 5


def test_workers_end_with_the_supervisor(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with supervised(tmp_path) as server:
        workers = pids(server)
        server.process.kill()
        wait_for(lambda: not any(map(alive, workers)))


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "Z (zombie)" not in status.read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("word", "expected"),
    [("fail", "model a is damaged"), ("die 0", "exited with status 7, 3 times before")],
)
def test_a_server_that_cannot_start_says_why(tmp_path: Path, word: str, expected: str) -> None:
    (tmp_path / "a").write_text(word)
    with pytest.raises(RuntimeError, match=expected), supervised(tmp_path, 2):
        pass


@pytest.mark.parametrize("how", ["stopped", "locked up"])
def test_a_worker_that_hangs_is_replaced(watched: Supervised, how: str) -> None:
    wait_for(lambda: back(watched))
    victim = watched.get("a")["pid"]
    with ThreadPoolExecutor(1) as pool:
        if how == "stopped":
            os.kill(victim, signal.SIGSTOP)
        else:
            pool.submit(hang, watched, victim)
        wait_for(lambda: not alive(victim), 10)
        wait_for(lambda: back(watched))
    assert watched.process.poll() is None


def hang(server: Supervised, victim: int) -> None:
    """Have a worker's event loop sleep, by connections until one reaches it."""
    while alive(victim):
        with contextlib.suppress(*LOST):
            if server.get("a", timeout=1)["pid"] == victim:
                server.get("spin/30", timeout=0.2)


def test_a_worker_that_is_busy_is_not(watched: Supervised) -> None:
    wait_for(lambda: back(watched))
    before = pids(watched)
    watched.get("burn/2.5")
    assert pids(watched) == before


def test_a_silence_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as a load may take, even if the worker computes all the time."""
    monkeypatch.setattr(heartbeat, "PING_SECONDS", 1 / 16)
    monkeypatch.setattr(heartbeat, "IDLE_CPU_SECONDS", -1)  # anything is something

    class Silent:
        pid = os.getpid()
        why = ""

        async def beat(self) -> None:
            await asyncio.sleep(60)

        def kill(self, why: str = "") -> None:
            self.why = why

    silent = Silent()
    asyncio.run(asyncio.wait_for(heartbeat.watch(silent, 0.125, 0.5), 10))
    assert silent.why == "did not answer for 0.5 s and was killed"


def test_a_crash_loop_backs_off_while_others_serve(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "a").write_text("a")
    with supervised(folder) as server:
        (tmp_path / "crash").touch()
        os.kill(server.get("a")["pid"], signal.SIGKILL)
        time.sleep(2.5)
        assert server.get("collect")["deaths"] <= 4  # at once, after 0.5 s, after 1 s
        wait_for(lambda: server.get("collect")["deaths"] >= 2)
        (tmp_path / "crash").unlink()
        wait_for(lambda: back(server))


def test_a_port_in_use_is_refused(pair: tuple[Supervised, Path], tmp_path: Path) -> None:
    from tenonnx.errors import InvalidArgument
    from tenonnx_serve import sockets

    del tmp_path
    with pytest.raises(InvalidArgument, match="is in use by another program"):
        sockets.reserve("127.0.0.1", pair[0].port)
