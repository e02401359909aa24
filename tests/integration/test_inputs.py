"""Inputs on a real pool: files that are sent, fetched and kept, by the command line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from daemons import Spawn
from page_desk import Desk
from test_daemons import worker_words

from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.xmpp.prosody import free_ports

pytestmark = pytest.mark.timeout(180)


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    """Returns once it is so."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


class Host:
    """A worker with a process, a directory and a cache of its own."""

    def __init__(self, spawn: Spawn, words: list[str], data_dir: Path) -> None:
        [port] = free_ports(1)
        self._page = f"http://127.0.0.1:{port}/metrics"
        self._start = lambda: spawn(*words, "--metrics", f"127.0.0.1:{port}")
        self.inputs = data_dir / "inputs"
        self.process = self._start()

    def restart(self) -> None:
        """Starts it again, after its process has gone."""
        self.process.wait(30)
        self.process = self._start()

    def kill(self) -> None:
        """Ends the worker's own process at once; its keeper sees to what it leaves."""
        for child in psutil.Process(self.process.pid).children():
            child.kill()

    def metric(self, name: str) -> int:
        text = urllib.request.urlopen(self._page, timeout=10).read().decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return int(float(found[1]))

    @property
    def is_fetching(self) -> bool:
        """Whether a part of a file is there, and not all."""
        return any(each.is_file() for each in self.inputs.glob("fetching/*/.*"))


class Site:
    """A pool whose own worker takes no part, and hosts that do."""

    def __init__(self, desk: Desk, spawn: Spawn) -> None:
        self.desk = desk
        self._spawn = spawn
        desk.types("kestrelctl up --workers 1")
        state = read_state(self.directory)
        assert state is not None
        self.state: PoolState = state

    @property
    def directory(self) -> Path:
        return self.desk.directory / "state" / "kestrel" / "pools" / "default"

    def host(self, name: str, *words: str) -> Host:
        """One more host; tasks that require `HOST` run there."""
        directory = self.desk.directory / name
        directory.mkdir()
        all_words = [*worker_words(self.state, directory, name), "--tags", "host", *words]
        host = Host(self._spawn, all_words, directory / "data")
        listed = "kestrelctl -q worker list -o json"
        wait_for(lambda: f"{name}@" in "\n".join(self.desk.types(listed)))
        return host

    def lose_files(self) -> None:
        """Has the file share lose all that it was sent."""
        of_share = self.directory / "server" / "data" / "share%2ekestrel%2elocalhost"
        for file in of_share.rglob("*"):
            if file.is_file() and "http_file_share" in str(file):
                file.unlink()

    def submit(self, words: str) -> list[str]:
        """What `submit` says of a job for hosts."""
        return self.desk.types(f"kestrelctl submit --requires host {words}")

    def task(self) -> dict[str, object]:
        """The only task of the last job."""
        [task] = json.loads("\n".join(self.desk.types("kestrelctl job tasks last -q -o json")))
        assert isinstance(task, dict)
        return task


@pytest.fixture
def site(desk: Desk, spawn: Spawn) -> Site:
    return Site(desk, spawn)


def test_a_file_is_fetched_once_by_each_host_and_sent_once(site: Site) -> None:
    hosts = [site.host(f"h{n}") for n in range(4)]
    data = os.urandom(3_000_000)
    (site.desk.directory / "data").write_bytes(data)
    (site.desk.directory / "tree" / "sub").mkdir(parents=True)
    (site.desk.directory / "tree" / "sub" / "text").write_text("deep")
    # Each task waits a little, so that all hosts have some.
    words = "--input data --input tree --array 1-100 --wait -- sh -c 'sleep 0.1; "
    words += "[ $(cat tree/sub/text) = deep ] && sha256sum data'"
    first = site.submit(words)
    assert first[0].startswith("sending data"), first
    assert re.match("job 1 done: 100 tasks", first[-1]), first
    outputs = "\n".join(site.desk.types("kestrelctl job logs 1 --all"))
    assert outputs.count(hashlib.sha256(data).hexdigest()) == 100
    fetched = [host.metric("kestrel_worker_input_fetched_bytes_total") for host in hosts]
    assert len(set(fetched)) == 1, "one file and one archive each"
    assert len(data) < fetched[0] < 2 * len(data)
    misses = [host.metric('kestrel_worker_inputs_total{cache="miss"}') for host in hosts]
    hits = [host.metric('kestrel_worker_inputs_total{cache="hit"}') for host in hosts]
    assert misses == [2, 2, 2, 2]
    assert sum(hits) == 200 - 8
    second = site.submit(words)
    assert second[0].startswith("job 2"), second
    assert [host.metric('kestrel_worker_inputs_total{cache="miss"}') for host in hosts] == misses


def test_a_worker_that_dies_while_it_fetches_leaves_nothing_and_the_task_runs(site: Site) -> None:
    host = site.host("h1")
    with (site.desk.directory / "large").open("wb") as file:
        file.truncate(500_000_000)
    site.submit("--input large -- stat -L -c %s large")
    wait_for(lambda: host.is_fetching)
    host.kill()
    host.restart()
    assert "done" in site.desk.types("kestrelctl job wait last --timeout 100")[-1]
    assert site.desk.types("kestrelctl job logs last") == ["500000000"]
    assert list((host.inputs / "fetching").iterdir()) == []
    [kept] = host.inputs.glob("owners/*/*")
    assert kept.stat().st_size == 500_000_000


def test_a_drained_worker_runs_what_it_fetches_for_and_its_cache_outlives_it(site: Site) -> None:
    host = site.host("h1")
    with (site.desk.directory / "large").open("wb") as file:
        file.truncate(500_000_000)
    site.submit("--input large -- stat -L -c %s large")
    wait_for(lambda: host.is_fetching)
    host.process.send_signal(signal.SIGTERM)
    host.restart()
    assert "done" in site.desk.types("kestrelctl job wait last --timeout 100")[-1]
    site.submit("--input large --wait -- test -s large")
    assert host.metric("kestrel_worker_input_fetched_bytes_total") == 0


def test_a_cancelled_job_is_fetched_for_no_further(site: Site) -> None:
    host = site.host("h1")
    with (site.desk.directory / "large").open("wb") as file:
        file.truncate(500_000_000)
    site.submit("--input large --array 1-3 -- true")
    wait_for(lambda: host.is_fetching)
    site.desk.types("kestrelctl job cancel last")
    assert "cancelled" in site.desk.types("kestrelctl job wait last --timeout 30")[-1]
    wait_for(lambda: not host.is_fetching)
    assert host.metric("kestrel_worker_input_fetched_bytes_total") == 0


def test_a_file_that_cannot_be_had_fails_the_task_with_the_reason(site: Site) -> None:
    host = site.host("h1", "--cache-size", "10k")
    (site.desk.directory / "data").write_text("x" * 20_000)
    said = site.submit("--input data --wait -- true")
    assert "job 1 failed" in said[-1] or any("failed" in line for line in said), said
    assert "does not fit into the worker's cache" in str(site.task()["reason"])
    told = "\n".join(site.desk.types("kestrelctl job tasks last"))
    assert "no-input" in told
    (site.desk.directory / "data").write_text("small")
    site.submit("--hold --input data -- true")
    site.lose_files()
    site.desk.types("kestrelctl job release last")
    site.desk.types("kestrelctl job wait last --timeout 60")
    assert "does not have the file any more" in str(site.task()["reason"])
    assert host.metric("kestrel_worker_input_cache_bytes") == 0
    # What the share has lost is sent again.
    assert site.submit("--input data --wait -- cat data")[-1].startswith("job 3 done")
