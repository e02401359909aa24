"""A manager with many sessions: this script plays the server, and all workers and a user behind it.

    .venv/bin/python tests/bench/sessions.py [SESSIONS] [TASKS]

Prints how long all take to join, the memory of the manager for each, the processor time of an idle
pool, how long all take to come back after the server was gone, with the largest lag of the manager,
and how many tasks a second it hands out that end at once. All is the manager's own: no real server
takes part, so none is measured, and none limits how many sessions there are.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import re
import secrets
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from xml.parsers import expat

import msgspec
import psutil

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import workers as work
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.protocol.forms import escaped
from kestrelctl.protocol.job_requests import SubmitJob
from kestrelctl.xmpp.prosody import LOOPBACK, free_ports

DOMAIN = "kestrel.localhost"
WORKERS, USERS = f"workers.{DOMAIN}", f"users.{DOMAIN}"
POOL, JOBS, USER = f"pool@{DOMAIN}", f"jobs@{DOMAIN}", f"user@{USERS}/bench"
IDLE_SECONDS = 60.0
AWAY_SECONDS = 5.0
#: So many sessions have one account: those of a machine with as many processors.
TOGETHER = 100
#: A worker whose hello was not answered sends another one after so long.
UNANSWERED_SECONDS = 30.0
_TO_WORKER: msgspec.json.Decoder[object] = msgspec.json.Decoder(work.ToWorker)


def stanza(payload: bytes, sender: str, to: str) -> str:
    return (
        f"<message to='{to}' from='{sender}'><json xmlns='{JSON_NAMESPACE}'>"
        f"{escaped(payload.decode())}</json></message>"
    )


class Worker:
    """One session of a worker; it says what a worker says, and runs nothing."""

    __slots__ = ("address", "beat_seconds", "greeted_at", "greeting", "said_at", "welcomed")

    def __init__(self, number: int) -> None:
        self.address = f"w{number // TOGETHER}@{WORKERS}/{number % TOGETHER}"
        self.beat_seconds = 60.0
        self.said_at = self.greeted_at = 0.0
        self.greeting = 0
        self.welcomed = False


class Server(asyncio.Protocol):
    """The server's end of the component's connection (XEP-0114), and all who speak through it."""

    def __init__(self, sessions: int, port: int) -> None:
        self.port = port
        self.workers = [Worker(number) for number in range(sessions)]
        self._by_address = {each.address: each for each in self.workers}
        self.welcomed = 0
        self.answered: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.online = asyncio.Event()
        self._may_write = asyncio.Event()
        self._out: list[str] = []
        self._transport: asyncio.Transport | None = None
        self._listening: asyncio.Server | None = None
        self._beats: list[tuple[float, str]] = []
        self._loop = asyncio.get_running_loop()

    # ---- the connection

    async def listen(self) -> None:
        self._listening = await self._loop.create_server(lambda: self, LOOPBACK, self.port)

    async def vanish(self) -> None:
        """Ends as a server that is killed: nobody is told anything."""
        assert self._listening is not None
        assert self._transport is not None
        self._listening.close()
        self.online.clear()
        self._transport.abort()
        self._beats.clear()
        self.welcomed = 0
        for each in self.workers:
            each.welcomed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._may_write.set()
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._on_start
        self._parser.EndElementHandler = self._on_end
        self._parser.CharacterDataHandler = self._on_text
        self._depth, self._is_closed = 0, False
        self._stanza: dict[str, str] = {}
        self._text: list[str] = []

    def data_received(self, data: bytes) -> None:
        if not self._is_closed:
            self._parser.Parse(data)
        self._flush()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _on_start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            self._write(
                "<?xml version='1.0'?><stream:stream xmlns='jabber:component:accept' "
                f"xmlns:stream='http://etherx.jabber.org/streams' id='bench' from='{DOMAIN}'>"
            )
        elif self._depth == 2:
            self._stanza = {**attributes, "name": name}
            self._text = []
            if name == "handshake":
                self._write("<handshake/>")

    def _on_text(self, text: str) -> None:
        if self._depth > 2:
            self._text.append(text)

    def _on_end(self, name: str) -> None:
        self._depth -= 1
        self._is_closed = self._depth == 0
        if self._depth != 1:
            return
        if name == "handshake":
            self.online.set()
        elif name == "message":
            self._on_message(self._stanza, "".join(self._text))
        elif name == "iq" and self._stanza.get("type") in ("get", "set"):
            asked = self._stanza
            self._write(
                f"<iq type='error' id='{asked['id']}' to='{asked.get('from', DOMAIN)}' "
                f"from='{asked['to']}'><error type='cancel'><service-unavailable "
                "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            )

    def _write(self, text: str) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(text)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write("".join(out).encode())

    # ---- those who speak through it

    def _on_message(self, attributes: dict[str, str], text: str) -> None:
        to = attributes.get("to", "")
        worker = self._by_address.get(to)
        if worker is not None and text:
            self._on_told(worker, text)
        elif to == USER and text:
            self.answered.put_nowait(msgspec.json.decode(text))
        elif to == attributes.get("from"):  # by which the manager learns how far we are
            self._write(f"<message to='{to}' from='{to}' id='{attributes['id']}' type='headline'/>")

    def say(self, worker: Worker, message: work.FromWorker) -> None:
        worker.said_at = self._loop.time()
        self._write(stanza(msgspec.json.encode(message), worker.address, POOL))

    def hello(self, worker: Worker) -> None:
        worker.greeting += 1
        worker.greeted_at = self._loop.time()
        self._write(f"<presence to='{POOL}' from='{worker.address}'/>")
        self.say(
            worker,
            work.Hello(
                version=work.VERSION,
                incarnation="bench",
                greeting=worker.greeting,
                at=round(time.time(), 3),
                ad=WorkerAd(
                    assets={"cpus": 1.0, "memory": 2.0 * (1 << 30)},
                    tags=("isolation:plain",),
                    host=worker.address.partition("@")[0],
                    os="Linux",
                    arch="x86_64",
                    version="0.2.0",
                ),
            ),
        )

    def _on_told(self, worker: Worker, text: str) -> None:
        message = _TO_WORKER.decode(text)
        if isinstance(message, work.Welcome):
            self.welcomed += not worker.welcomed
            worker.welcomed = True
            self._set_beat(worker, message.heartbeat_seconds)
        elif isinstance(message, work.SetHeartbeat):
            self._set_beat(worker, message.heartbeat_seconds)
        elif isinstance(message, work.Who):
            self.hello(worker)
        elif isinstance(message, work.Run):
            now = time.time()
            ended = [
                Result(number + k, job, index + k, Outcome.DONE, now, 0.0005)
                for number, job, index, count, _, _ in message.spans
                for k in range(count)
            ]
            seals = [
                (number, job, index, count, mark)
                for number, job, index, count, _, mark in message.spans
            ]
            if ended:
                self.say(worker, work.Report(results=ended, seals=seals))
        elif isinstance(message, work.Refused):
            raise SystemExit(f"the pool refused: {message.reason}")

    def _set_beat(self, worker: Worker, seconds: float) -> None:
        worker.beat_seconds = seconds
        first = self._loop.time() + seconds * random.uniform(0.5, 1.0)
        heapq.heappush(self._beats, (first, worker.address))

    async def beat(self) -> None:
        """Has each worker give a sign of life as often as the pool wants one."""
        while True:
            await asyncio.sleep(0.05)
            now = self._loop.time()
            while self._beats and self._beats[0][0] <= now:
                _, address = heapq.heappop(self._beats)
                worker = self._by_address[address]
                due = worker.said_at + worker.beat_seconds * random.uniform(0.9, 1.0)
                if due <= now:
                    self.say(worker, work.Heartbeat())
                    due = now + worker.beat_seconds * random.uniform(0.9, 1.0)
                heapq.heappush(self._beats, (due, address))

    async def all_join(self) -> float:
        """Has all say hello as fast as the manager reads; returns how long it took, in seconds."""
        began = self._loop.time()
        for number, worker in enumerate(self.workers):
            self.hello(worker)
            if number % 100 == 0:
                await asyncio.sleep(0)
                await self._may_write.wait()
        while self.welcomed < len(self.workers):
            await asyncio.sleep(0.05)
            late = self._loop.time() - UNANSWERED_SECONDS
            for worker in self.workers:
                if not worker.welcomed and worker.greeted_at < late:
                    self.hello(worker)
        return self._loop.time() - began

    async def run(self, tasks: int) -> float:
        """Submits a job and waits for its end; returns how long it took, in seconds."""
        began = self._loop.time()
        spec = JobSpec(program=Program(argv=("true",)), count=tasks)
        asked = SubmitJob(id="1", spec=spec, watch=True)
        self._write(stanza(msgspec.json.encode(asked), USER, JOBS))
        while (answer := await self.answered.get())["type"] != "ended":
            if answer["type"] == "failed":
                raise SystemExit(f"the job was refused: {answer}")
        return self._loop.time() - began


class Manager:
    """A real manager, in a directory of its own."""

    def __init__(self, directory: Path, port: int, metrics_port: int) -> None:
        self._url = f"http://{LOOPBACK}:{metrics_port}/metrics"
        self._directory = directory
        (directory / "secret").write_text(secrets.token_hex(16))
        (directory / "secret").chmod(0o600)
        self._command = [
            *(sys.executable, "-P", "-m", "kestrelctl", "manager", "run", "--domain", DOMAIN),
            *("--name", "bench", "--host", LOOPBACK, "--port", str(port)),
            *("--secret-file", str(directory / "secret"), "--data-dir", str(directory / "manager")),
            *("--worker-host", WORKERS, "--user-host", USERS),
            *("--metrics", f"{LOOPBACK}:{metrics_port}"),
        ]

    async def start(self) -> None:
        with (self._directory / "log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self._command, stdout=log, stderr=log
            )
        self._seen = psutil.Process(self.process.pid)

    def own_bytes(self) -> int:
        """The memory that is its own."""
        return int(self._seen.memory_full_info().uss)

    def cpu_seconds(self) -> float:
        """The processor time that it has taken."""
        return float(sum(self._seen.cpu_times()[:2]))

    async def metric(self, name: str) -> float:
        """Returns the value of a metric that has no labels."""

        def page() -> str:
            with urllib.request.urlopen(self._url, timeout=60) as answer:
                return str(answer.read().decode())

        found = re.search(rf"^{name} (\S+)$", await asyncio.to_thread(page), re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    async def lag(self) -> float:
        """Returns its largest lag of the last half minute to minute, in seconds."""
        return await self.metric("kestrel_event_loop_lag_max_seconds")


async def measure(sessions: int, tasks: int) -> None:
    """Prints the figures of one pool."""
    directory = Path(tempfile.mkdtemp(prefix="kestrel-sessions-"))
    port, metrics_port = free_ports(2)
    server, manager = Server(sessions, port), Manager(directory, port, metrics_port)
    try:
        await server.listen()
        await manager.start()
        async with asyncio.timeout(60):
            await server.online.wait()
        await asyncio.sleep(2)
        empty, spent = manager.own_bytes(), manager.cpu_seconds()
        took = await server.all_join()
        spent = manager.cpu_seconds() - spent
        each = (manager.own_bytes() - empty) / sessions
        print(
            f"{sessions:,} sessions join in {took:.1f} s, {1e6 * spent / sessions:.0f} µs of the "
            f"manager each; largest lag {await manager.lag():.2f} s; {each / 1e3:.2f} kB each",
            flush=True,
        )
        beating = asyncio.create_task(server.beat())
        await asyncio.sleep(IDLE_SECONDS)  # all have their interval
        spent = manager.cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        spent = manager.cpu_seconds() - spent
        print(
            f"idle: {100 * spent / IDLE_SECONDS:.1f} % of a core; largest lag "
            f"{await manager.lag():.3f} s",
            flush=True,
        )
        await server.vanish()
        await asyncio.sleep(AWAY_SECONDS)
        await server.listen()
        began = time.monotonic()
        await server.online.wait()
        took = await server.all_join()
        print(
            f"after the server was gone for {AWAY_SECONDS:g} s all are back in "
            f"{time.monotonic() - began:.1f} s ({took:.1f} s from the first); "
            f"largest lag {await manager.lag():.2f} s",
            flush=True,
        )
        spent = manager.cpu_seconds()
        took = await server.run(tasks)
        spent = manager.cpu_seconds() - spent
        print(
            f"{tasks:,} tasks in {took:.1f} s: {tasks / took:,.0f} a second, "
            f"{1e6 * spent / tasks:.0f} µs of the manager each; largest lag "
            f"{await manager.lag():.2f} s; {manager.own_bytes() / 1e6:.0f} MB in all",
            flush=True,
        )
        beating.cancel()
    except BaseException:
        print((directory / "log").read_text()[-2000:], file=sys.stderr)
        raise
    finally:
        if manager.process.returncode is None:
            manager.process.terminate()
        await manager.process.wait()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    asyncio.run(measure(wanted, int(sys.argv[2]) if len(sys.argv) > 2 else 500_000))
