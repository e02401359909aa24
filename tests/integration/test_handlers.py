"""Handlers are run for real: programs, and requests to a web server. Mails: `test_mail.py`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import psutil
import pytest

from kestrelctl.core.membership.handler_words import ToldEvent
from kestrelctl.manager.handlers.channels import HandlerFailed, ProgramChannel, WebhookChannel
from kestrelctl.xmpp.prosody import LOOPBACK

EVENT = ToldEvent(
    pool="pool", handler="h", number=7, at=5.0, event="failed", worker="w1@workers.pool/a",
    groups=("gpu",), reason="it fell silent", host="crow",
)  # fmt: skip


def program(directory: Path, text: str) -> str:
    place = directory / "handler"
    place.write_text(f"#!{sys.executable}\n{text}")
    place.chmod(0o755)
    return str(place)


async def test_a_program_has_the_event_in_variables_and_on_its_input(tmp_path: Path) -> None:
    found = tmp_path / "found"
    place = program(
        tmp_path,
        "import json, os, sys\n"
        "own = {k: v for k, v in os.environ.items() if k.startswith('KESTREL_')}\n"
        "open(sys.argv[1], 'w').write(json.dumps([json.load(sys.stdin), own]))",
    )
    os.environ["KESTREL_SECRET"] = "hush"
    try:
        await ProgramChannel((place, str(found)), 20.0).tell([EVENT])
    finally:
        del os.environ["KESTREL_SECRET"]
    on_input, variables = json.loads(found.read_text())
    assert msgspec.convert(on_input, ToldEvent) == EVENT
    assert variables["KESTREL_EVENT"] == "failed"
    assert variables["KESTREL_WORKER"] == "w1@workers.pool/a"
    assert "KESTREL_SECRET" not in variables


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; sys.exit('no\\nsuch thing')", "exit status 1: no such thing"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("import time; time.sleep(600)", "it took longer than 1 s"),
        ("while True: print('x' * 999)", "it took longer than 1 s"),
        ("import os, time\nif os.fork() == 0: time.sleep(600)", "it took longer than 1 s"),
    ],
)
async def test_a_program_that_fails_says_why_and_nothing_of_it_stays(
    tmp_path: Path, text: str, why: str
) -> None:
    place = program(tmp_path, text)
    with pytest.raises(HandlerFailed, match=why) as raised:
        await ProgramChannel((place,), 1.0).tell([EVENT])
    assert not raised.value.again
    async with asyncio.timeout(10):
        while any(place in (each.info["cmdline"] or []) for each in processes()):
            await asyncio.sleep(0.01)


def processes() -> Iterator[psutil.Process]:
    return psutil.process_iter(["cmdline"])


async def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(HandlerFailed, match="No such file"):
        await ProgramChannel((str(tmp_path / "none"),), 1.0).tell([EVENT])


@contextmanager
def web_server(*statuses: int) -> Iterator[tuple[str, list[bytes]]]:
    """Answers with these, then with 204; yields its address and what was posted."""
    left, posted = list(statuses), list[bytes]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(left.pop(0) if left else 204)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/hook?a=b", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_web_server_is_told_in_json() -> None:
    with web_server() as (address, posted):
        await WebhookChannel(address, 10.0).tell([EVENT])
    assert [msgspec.json.decode(each, type=ToldEvent) for each in posted] == [EVENT]


@pytest.mark.parametrize(
    ("status", "again"), [(503, True), (429, True), (404, False), (302, False)]
)
async def test_an_answer_but_yes_is_a_failure(status: int, again: bool) -> None:
    with (
        web_server(status) as (address, _),
        pytest.raises(HandlerFailed, match=f"status {status}") as raised,
    ):
        await WebhookChannel(address, 10.0).tell([EVENT])
    assert raised.value.again is again


async def test_a_web_server_that_is_away_is_asked_again() -> None:
    with web_server() as (address, _):
        pass
    with pytest.raises(HandlerFailed) as raised:
        await WebhookChannel(address, 10.0).tell([EVENT])
    assert raised.value.again


@contextmanager
def dripping_server() -> Iterator[str]:
    """Answers a byte at a time, and never to an end; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 fine\r\nX-Slow: ")
                while not over.wait(0.05):
                    self.wfile.write(b"x")

        def log_message(self, *_words: object) -> None:
            """Nobody reads it."""

    over = threading.Event()
    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_web_server_that_never_ends_its_answer_holds_up_nobody() -> None:
    with dripping_server() as address:
        told = [WebhookChannel(address, 0.5).tell([EVENT]) for _ in range(40)]
        found = await asyncio.gather(*told, return_exceptions=True)
        assert {str(each) for each in found} == {"it took longer than 0.5 s"}
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: 5) == 5
            while any(each.name == "webhook" for each in threading.enumerate()):
                await asyncio.sleep(0.01)
