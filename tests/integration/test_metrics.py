"""Metrics as Prometheus meets them: a real pool whose numbers add up, and an endpoint that no
request can hurt.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.metrics import endpoint
from kestrelctl.metrics.endpoint import Endpoint, listen
from kestrelctl.metrics.lag import LoopLag
from kestrelctl.metrics.readers import Readers
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
KESTRELCTL = [sys.executable, "-m", "kestrelctl"]


async def ask(url: str, request: str = "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n") -> tuple[int, str]:
    """Status and body of an answer."""
    host, port, path = parts(url)
    raw = await send(host, port, request.format(path=path).encode())
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def parts(url: str) -> tuple[str, int, str]:
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port), f"/{path}"


async def send(host: str, port: int, data: bytes) -> bytes:
    """All that comes back; nothing if the connection is cut."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def scrape(url: str) -> Samples:
    status, text = await ask(url)
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(page: Samples, name: str, **labels: str) -> float:
    return page[name, frozenset(labels.items())]


def total(page: Samples, name: str) -> float:
    return sum(found for (known, _), found in page.items() if known == name)


# -- a pool ----------------------------------------------------------------------------------------


def who_runs(command: list[str], keepers: list[int]) -> int | None:
    """The place of the worker below whose keeper a command runs; None if it does not run."""
    for place, keeper in enumerate(keepers):
        for process in psutil.Process(keeper).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.cmdline() == command:
                    return place
    return None


async def test_the_numbers_of_a_pool_add_up_while_it_works_and_a_worker_dies(
    tmp_path: Path,
) -> None:
    once = f"[ $KESTREL_TASK_ID = 51 ] && mkdir {tmp_path / 'begun'} && exec sleep 61"
    script = f"{once}; sleep 0.02; exit $((KESTREL_TASK_ID % 10 == 0))"
    spec = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=500, max_failures=2)
    pages: list[Samples] = []
    async with throw_away_pool(4) as state, connect_local(state) as user:
        directory = Path(state.password_file).parent
        await user.ask(rq.SubmitJob(spec=spec, watch=True))
        ended = asyncio.ensure_future(anext(user.pushed()))
        killed: int | None = None
        async with asyncio.timeout(90):
            while not ended.done():
                pages.append(await scrape(state.metrics))
                if killed is None:
                    killed = who_runs(["sleep", "61"], state.worker_pids)
                    if killed is not None:
                        worker = psutil.Process(state.worker_pids[killed]).children()[0]
                        worker.send_signal(signal.SIGKILL)
                await asyncio.sleep(0.05)
            job = (await ended).job
            assert (job.done, job.failed, job.lost) == (450, 50, 0)
            page = await scrape(state.metrics)
            pages.append(page)
            status = await user.ask(rq.PoolStatus())
            again = read_state(directory)
            assert again is not None
            assert killed is not None
            lived = [url for place, url in enumerate(again.worker_metrics) if place != killed]
            own = [await scrape(url) for url in lived]
    assert isinstance(status, an.PoolSummary)
    for moment in pages:
        assert value(moment, "kestrel_tasks_submitted_total") in (0, 500)
        assert value(moment, "kestrel_tasks_submitted_total") == (
            total(moment, "kestrel_tasks_finished_total") + total(moment, "kestrel_tasks")
        )
        assert total(moment, "kestrel_unmatched_tasks") == value(
            moment, "kestrel_tasks", state="waiting"
        )
    assert len(pages) > 3
    assert value(page, "kestrel_tasks_finished_total", outcome="done") == 450
    assert value(page, "kestrel_tasks_finished_total", outcome="failed") == 50
    assert value(page, "kestrel_jobs_finished_total", outcome="failed") == 1
    assert total(page, "kestrel_tasks") == total(page, "kestrel_jobs") == 0
    assert value(page, "kestrel_retries_total", reason="failure") == 50
    losses = total(page, "kestrel_losses_total")
    assert losses >= 1
    assert losses == value(page, "kestrel_retries_total", reason="loss")
    assert value(page, "kestrel_attempts_total") == status.totals["tasks_sent"]
    assert value(page, "kestrel_task_wait_seconds_count") == 500
    assert value(page, "kestrel_task_run_seconds_count") == 450 + 100
    assert value(page, "kestrel_task_dispatch_seconds_count") == 450
    assert value(page, "kestrel_stanzas_total", kind="submit", direction="in") == 1
    assert value(page, "kestrel_worker_joins_total") >= 4
    assert value(page, "kestrel_commit_seconds_count") > 0
    assert value(page, "kestrel_store_bytes") > 0
    assert value(page, "kestrel_worker_clock_skew_seconds_max") < 5
    for process in own:
        finished = total(process, "kestrel_worker_tasks_finished_total")
        assert finished > 0
        assert value(process, "kestrel_worker_spawn_seconds_count") == finished
        assert value(process, "kestrel_worker_task_run_seconds_count") == finished
        assert value(process, "kestrel_worker_sessions", state="online") == 2
        assert value(process, "kestrel_worker_offered", asset="cpus") == 2
        assert total(process, "kestrel_worker_stanzas_total") > 0


async def test_ready_follows_the_connection(local_pool: PoolState) -> None:
    base = local_pool.metrics.removesuffix("/metrics")
    worker = local_pool.worker_metrics[0].removesuffix("/metrics")
    assert await ask(f"{base}/-/healthy") == (200, "healthy\n")
    assert await ask(f"{base}/-/ready") == (200, "ready\n")
    assert await ask(f"{worker}/-/ready") == (200, "ready\n")
    os.kill(local_pool.server_pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        while (await ask(f"{base}/-/ready"))[0] == 200:
            await asyncio.sleep(0.02)
    assert (await ask(f"{base}/-/healthy"))[0] == 200
    async with asyncio.timeout(40):
        while (await ask(f"{base}/-/ready"))[0] == 503 or (await ask(f"{worker}/-/ready"))[
            0
        ] == 503:
            await asyncio.sleep(0.05)


async def test_a_manager_without_its_server_says_why_it_is_not_ready(tmp_path: Path) -> None:
    port = free_port()
    with manager(tmp_path, "--port", "9", "--metrics", f"127.0.0.1:{port}"):
        async with asyncio.timeout(15):
            while True:
                with contextlib.suppress(OSError):
                    answer = await ask(f"http://127.0.0.1:{port}/-/ready")
                    break
                await asyncio.sleep(0.05)
        assert answer == (503, "not connected to the XMPP server\n")
        assert (
            total(await scrape(f"http://127.0.0.1:{port}/metrics"), "kestrel_server_connected") == 0
        )


def test_a_port_that_is_taken_is_an_error_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with manager(tmp_path, "--metrics", address) as process:
            _, errors = process.communicate(timeout=15)
    assert process.returncode == 1
    assert f"error: metrics cannot be served at {address}" in errors
    assert "cause: Address already in use" in errors
    assert "Traceback" not in errors


def test_a_worker_minds_a_port_that_is_taken_too(local_pool: PoolState, tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("w9@x.localhost none\n")
    credentials.chmod(0o600)
    address = local_pool.metrics.removeprefix("http://").removesuffix("/metrics")
    command = [*KESTRELCTL, "worker", "run", "--pool", "x.localhost", "--no-tls"]
    command += ["--credentials", str(credentials), "--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--metrics", address], capture_output=True, text=True, timeout=15
    )
    assert done.returncode == 1
    assert f"error: metrics cannot be served at {address}" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_is_none_is_an_error_of_the_command_line(tmp_path: Path) -> None:
    with manager(tmp_path, "--metrics", "9437") as process:
        _, errors = process.communicate(timeout=15)
    assert process.returncode == 2
    assert "is not HOST:PORT" in errors


@contextlib.contextmanager
def manager(directory: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A manager of its own, ended afterwards."""
    secret = directory / "secret"
    secret.write_text("secret")
    command = [*KESTRELCTL, "manager", "run", "--domain", "x.localhost"]
    command += ["--secret-file", str(secret), "--data-dir", str(directory / "data"), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def test_the_command_line_knows_where_a_local_pool_serves(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*KESTRELCTL, *words], env=environment, capture_output=True, text=True, timeout=90
        )

    assert run("up", "--name", "seen", "--workers", "2").returncode == 0
    try:
        found = json.loads(run("pool", "metrics", "--pool", "seen", "-o", "json").stdout)
        assert found["manager"].endswith("/metrics")
        assert len(found["workers"]) == min(2, os.cpu_count() or 1)
        assert found["manager"] in run("pool", "metrics", "--pool", "seen").stdout
        page = run("pool", "metrics", "--pool", "seen", "--text").stdout
        assert "\nkestrel_server_connected 1.0\n" in page
    finally:
        assert run("down", "--name", "seen").returncode == 0
    assert run("pool", "metrics", "--pool", "seen").returncode == 5


# -- the endpoint ----------------------------------------------------------------------------------


@pytest.fixture
async def served() -> AsyncIterator[Endpoint]:
    found = Endpoint(lambda: b"x 1\n", lambda: "", Readers())
    await found.start(listen("127.0.0.1:0"))
    yield found
    await found.stop()


async def test_head_is_answered_without_the_page(served: Endpoint) -> None:
    request = "HEAD {path} HTTP/1.1\r\n\r\n"
    assert await ask(served.url, request) == (200, "")
    assert await ask(served.url) == (200, "x 1\n")


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", 405),
        ("DELETE /metrics HTTP/1.1\r\n\r\n", 405),
        ("GET / HTTP/1.1\r\n\r\n", 404),
        ("GET /metrics/../etc/passwd HTTP/1.0\r\n\r\n", 404),
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200),
        ("GET metrics HTTP/1.1\r\n\r\n", 400),
        ("GET /metrics\r\n\r\n", 400),
        ("\r\n\r\n", 400),
        ("\x00\xff\x16\x03\x01\r\n\r\n", 400),
        ("GET /" + "x" * 20_000 + " HTTP/1.1\r\n\r\n", 431),
        ("GET /metrics HTTP/1.1\r\n" + "A: b\r\n" * 5_000 + "\r\n", 431),
        ("x" * 1_000_000, 431),
    ],
)
async def test_a_strange_request_gets_a_refusal(
    served: Endpoint, request_text: str, status: int
) -> None:
    host, port, _ = parts(served.url)
    answer = await send(host, port, request_text.encode("latin-1"))
    # What was still under way when the answer came may have cut the connection before it was read.
    assert answer == b"" if not answer and status == 431 else int(answer.split()[1]) == status
    assert (await ask(served.url))[0] == 200


async def test_nobody_can_hold_the_endpoint_for_ever(
    served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PATIENCE_SECONDS", 0.4)
    host, port, _ = parts(served.url)
    answer = await send(host, port, b"GET /metrics HTTP/1.1\r\n")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_leaves_early_hurts_nobody(served: Endpoint) -> None:
    host, port, _ = parts(served.url)
    for _ in range(50):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        writer.transport.abort()
    assert (await ask(served.url))[0] == 200


async def test_a_crowd_that_never_asks_keeps_nobody_out(
    served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of them goes, whoever asks is heard, and what they began is not finished."""
    monkeypatch.setattr(endpoint, "PATIENCE_SECONDS", 600.0)  # nobody goes for being slow
    host, port, _ = parts(served.url)
    crowd = []
    for number in range(300):
        crowd.append(await asyncio.open_connection(host, port))
        crowd[-1][1].write(b"GET /metrics HTTP/1.1\r\n")
        if number % 30 == 29:
            assert (await ask(served.url))[0] == 200
    first, last = crowd[0][0], crowd[-1][0]
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(first.read(), 30) == b""
    assert len(served._clients) <= endpoint.MAX_CLIENTS
    assert not last.at_eof()
    assert (await ask(served.url))[0] == 200
    for _, writer in crowd:
        writer.transport.abort()


async def test_a_page_that_cannot_be_made_is_an_answer_too() -> None:
    def broken() -> bytes:
        raise RuntimeError("no page")

    served = Endpoint(broken, lambda: "the reason", Readers())
    await served.start(listen("127.0.0.1:0"))
    assert (await ask(served.url))[0] == 500
    base = served.url.removesuffix("/metrics")
    assert await ask(f"{base}/-/ready") == (503, "the reason\n")
    assert (await ask(f"{base}/-/healthy"))[0] == 200
    await served.stop()


async def test_two_cannot_have_one_address(served: Endpoint) -> None:
    host, port, _ = parts(served.url)
    with pytest.raises(KestrelError, match="cannot be served"):
        listen(f"{host}:{port}")


async def test_who_is_not_named_gets_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = Readers()
    monkeypatch.setattr(readers, "admit", lambda peer: peer != "127.0.0.1")
    served = Endpoint(lambda: b"x 1\n", lambda: "", readers)
    await served.start(listen("127.0.0.1:0"))
    for path in ("/metrics", "/-/healthy", "/elsewhere"):
        refused = await ask(served.url.removesuffix("/metrics") + path)
        assert refused == (403, "127.0.0.1 may not read this; see --metrics-allow\n")
    await served.stop()


async def test_a_loop_that_stands_still_is_noticed() -> None:
    lag = LoopLag()
    lag.start()
    await asyncio.sleep(0)
    time.sleep(0.6)  # noqa: ASYNC251
    async with asyncio.timeout(5):
        while lag.seconds.count == 0:
            await asyncio.sleep(0.01)
    lag.stop()
    assert lag.max_seconds > 0.3
    assert lag.seconds.sum >= 0.3
