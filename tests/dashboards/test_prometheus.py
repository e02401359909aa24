"""A real Prometheus at a real pool: every panel has something to show, and alerts come when what
they are about has happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml
from dashboardkit import (
    RULES,
    Expression,
    alerts,
    boards,
    expressions,
    raw_names,
    recordings,
    substituted,
    tool,
)

from kestrelctl.core.model.spec import JobSpec
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.local.throw_away_flock import throw_away_flock
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import free_ports

#: Only with TLS, which a pool on one machine has not.
NOT_HERE = {"kestrel_certificate_expiry_timestamp_seconds"}

#: An environment for it costs a moment: nothing is in it.
CLASSES = """
[environment.tiny]
kind = "venv"
tags = ["tiny"]
"""

Series = list[dict[str, Any]]


class Prometheus:
    """Debian's Prometheus, for the length of a `with`, on loopback.

    It scrapes and evaluates each second, and its alerts fire after three seconds.
    """

    def __init__(self, directory: Path, pool: PoolState) -> None:
        self._directory = directory
        self._port = free_ports(1)[0]
        for file in RULES:
            rules = yaml.safe_load(file.read_text())
            for rule in (rule for group in rules["groups"] for rule in group["rules"]):
                if "alert" in rule:
                    rule["for"] = "3s"
            (directory / file.name).write_text(yaml.safe_dump(rules))
        (directory / "prometheus.yml").write_text(yaml.safe_dump(_configuration(pool)))

    async def __aenter__(self) -> Prometheus:
        with (self._directory / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                tool("prometheus"),
                f"--config.file={self._directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
                stdout=log,
                stderr=log,
            )
        try:
            await until(self._ready, 20, lambda: (self._directory / "log").read_text()[-2000:])
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()

    async def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(_fetch, f"http://127.0.0.1:{self._port}/-/ready")
            return True
        return False

    async def ask(self, path: str, **parameters: str | float) -> Any:
        """The data of an answer of the HTTP API."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{query}"
        answer = json.loads(await asyncio.to_thread(_fetch, url))
        assert answer["status"] == "success", answer
        return answer["data"]

    async def value(self, query: str) -> float:
        """The sum of what an expression gives now."""
        found = (await self.ask("query", query=query))["result"]
        return sum(float(series["value"][1]) for series in found)

    async def firing(self) -> dict[str, dict[str, Any]]:
        """The alerts that fire now, by name."""
        found = (await self.ask("alerts"))["alerts"]
        return {each["labels"]["alertname"]: each for each in found if each["state"] == "firing"}


def _configuration(pool: PoolState) -> dict[str, Any]:
    """As the role makes it; manager, server and the first worker process are on one host."""
    pages = [
        ("kestrel-manager", pool.metrics, "here"),
        ("kestrel-xmpp-server", pool.server_metrics, "here"),
    ]
    hosts = ("here", "there", "up", "down")
    pages += [
        ("kestrel-worker", url, host) for url, host in zip(pool.worker_metrics, hosts, strict=False)
    ]
    jobs: dict[str, list[dict[str, Any]]] = {}
    for job, url, host in pages:
        target = urllib.parse.urlsplit(url).netloc
        jobs.setdefault(job, []).append({"targets": [target], "labels": {"instance": host}})
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [file.name for file in RULES],
        "scrape_configs": [
            {"job_name": job, "static_configs": targets} for job, targets in jobs.items()
        ],
    }


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 503:  # not ready
                raise ConnectionError from None
            return error.read()
    return body


async def until(
    holds: Callable[[], Awaitable[bool]], seconds: float, why: Callable[[], object] = lambda: ""
) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + seconds
    while not await holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {why()}"
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def watched(directory: Path, workers: int) -> AsyncIterator[tuple[PoolState, Prometheus]]:
    """A pool and its Prometheus, which has seen all of it."""
    async with throw_away_pool(workers) as pool, seen_by_prometheus(directory, pool, workers) as it:
        yield pool, it


@contextlib.asynccontextmanager
async def seen_by_prometheus(
    directory: Path, pool: PoolState, workers: int
) -> AsyncIterator[Prometheus]:
    """The Prometheus of a pool that runs, once it has seen all of it."""
    async with Prometheus(directory, pool) as prometheus:
        seen: list[float | None] = []
        all_of_it = [workers, 2 + len(pool.worker_metrics)]

        async def complete() -> bool:
            asked = ("instance:kestrel_workers_usable:sum", "sum(up)")
            seen[:] = [await prometheus.value(query) for query in asked]
            return seen == all_of_it

        await until(complete, 20, lambda: f"{seen} instead of {all_of_it}")
        yield prometheus


# -- panels ----------------------------------------------------------------------------------------


async def test_every_panel_and_alert_finds_its_data_in_a_pool_at_work(tmp_path: Path) -> None:
    script = "sleep 0.02; exit $((KESTREL_TASK_ID % 80 == 0))"
    work = JobSpec(argv=("/bin/sh", "-c", script), count=400, max_failures=2)
    (tmp_path / "flock").mkdir()
    classes = tmp_path / "classes.toml"
    classes.write_text(CLASSES)
    async with (
        throw_away_flock(
            tmp_path / "flock", {"home": 4, "near": 2}, metrics=True, environments=(classes,)
        ) as flock,
        connect_local(pool := flock.pools["home"]) as user,
        seen_by_prometheus(tmp_path, pool, 4) as prometheus,
    ):
        began = time.monotonic()
        assert await prometheus.firing() == {}
        user.session.send("{not json", f"jobs@{pool.domain}")
        await user.ask(rq.SubmitJob(spec=work, watch=True))
        async with asyncio.timeout(60):
            assert (await anext(user.pushed())).job.done == 395
            tiny = JobSpec(argv=("/bin/true",), requires=("TINY",))
            await user.ask(rq.SubmitJob(spec=tiny, watch=True))
            assert (await anext(user.pushed())).job.done == 1
        async with connect_local(pool, admin=True) as admin:
            await admin.ask(rq.SetAsset(name="licences", total=3))
        licensed = {"cpus": 1.0, "licences": 1.0}
        await user.ask(rq.SubmitJob(spec=JobSpec(argv=("/bin/sleep", "300"), request=licensed)))
        await user.ask(rq.SubmitJob(spec=JobSpec(argv=("/bin/sleep", "300"), count=20)))

        async def seen() -> bool:
            twice = 'count_over_time(kestrel_stanzas_total{kind="unreadable"}[1m])'
            return (
                await prometheus.value('kestrel_tasks{state="running"}') >= 6
                and await prometheus.value('kestrel_flock_loan_tasks{direction="taken"}') >= 2
                and await prometheus.value("increase(kestrel_jobs_finished_total[1m])") > 0
                and await prometheus.value("kestrel_environments_started_total") > 0
                and await prometheus.value(twice) >= 2
            )

        await until(seen, 20)
        empty = []
        lasted, ended = math.ceil(time.monotonic() - began), time.time()
        for expression in expressions():
            series = await results(prometheus, expression, ended - lasted, ended)
            lacking = missing_labels(expression, series)
            if raw_names(expression.text) & NOT_HERE:
                assert series == []
            elif not any(numbers(series)) or lacking:
                empty.append(f"{expression} {lacking or ''}")
        assert not empty, "nothing to show:\n" + "\n".join(empty)
        for board in boards().values():
            for variable in board["templating"]["list"]:
                if "definition" in variable:
                    assert await choices(prometheus, variable["definition"]), variable["name"]
        known = set(await prometheus.ask("label/__name__/values"))
        asked = {name for rule in alerts().values() for name in raw_names(rule["expr"])}
        assert asked - known == NOT_HERE
        assert set(recordings()) <= known
        assert await prometheus.firing() == {}


async def results(
    prometheus: Prometheus, expression: Expression, began: float, ended: float
) -> Series:
    """What Grafana would get: a point for the end, or a curve from the beginning to the end."""
    if expression.instant:
        answer = await prometheus.ask("query", query=expression.substituted, time=ended)
    else:
        answer = await prometheus.ask(
            "query_range", query=expression.substituted, start=began, end=ended, step=1
        )
    found: Series = answer["result"]
    return found


def numbers(series: Series) -> list[bool]:
    """Of each series, whether it has a number."""
    return [
        any(not math.isnan(float(value)) for _, value in each.get("values", [each.get("value")]))
        for each in series
    ]


def missing_labels(expression: Expression, series: Series) -> set[str]:
    """Labels that the legend shows and some series has not."""
    shown = set(re.findall(r"\{\{(\w+)\}\}", expression.legend))
    return {label for label in shown for each in series if not each["metric"].get(label)}


async def choices(prometheus: Prometheus, definition: str) -> list[str]:
    """What a variable offers."""
    asked = re.fullmatch(r"label_values\((.+), (\w+)\)", substituted(definition))
    assert asked
    found: list[str] = await prometheus.ask(f"label/{asked[2]}/values", **{"match[]": asked[1]})
    return found


# -- alerts ----------------------------------------------------------------------------------------


async def test_what_breaks_raises_its_alert_and_what_mends_ends_it(tmp_path: Path) -> None:
    workers = 12
    nowhere = JobSpec(argv=("/bin/true",), requires=("a-tag-that-nobody-has",), count=3)
    work = JobSpec(argv=("/bin/sleep", "300"), count=workers)
    async with watched(tmp_path, workers) as (pool, prometheus):

        async def fires(*names: str, seconds: float = 20) -> dict[str, Any]:
            async def there() -> bool:
                return set(names) <= set(await prometheus.firing())

            await until(there, seconds, lambda: names)
            return await prometheus.firing()

        async def ends(*names: str, seconds: float = 30) -> None:
            async def gone() -> bool:
                return not set(names) & set(await prometheus.firing())

            await until(gone, seconds, lambda: names)

        assert await prometheus.firing() == {}
        async with connect_local(pool) as user:
            await user.ask(rq.SubmitJob(spec=nowhere))
            found = await fires("KestrelUnmatchable")
            alert = found["KestrelUnmatchable"]
            assert alert["labels"]["reason"] == "missing-tags"
            assert alert["annotations"]["description"].startswith("3 tasks wait")
            assert re.fullmatch(
                r"/d/kestrel-waiting\?viewPanel=\d+&var-manager=here",
                alert["annotations"]["dashboard_url"],
            )
            await user.ask(rq.SubmitJob(spec=work))

            async def all_run() -> bool:
                running = 'kestrel_tasks{state="running"}'
                return await prometheus.value(running) == workers

            await until(all_run, 20)

        with nobody_mends(pool):
            for pid in pool.worker_pids:
                os.killpg(pid, signal.SIGKILL)
            found = await fires("KestrelNoWorkers", "KestrelHighLossRate")
            assert set(found) == {"KestrelNoWorkers", "KestrelHighLossRate"}
            os.kill(pool.server_pid, signal.SIGKILL)
            await fires("KestrelServerDown")
            await ends("KestrelNoWorkers")
            os.kill(pool.manager_pid, signal.SIGKILL)
            found = await fires("KestrelManagerDown")
            assert found["KestrelManagerDown"]["labels"]["severity"] == "critical"
            await ends("KestrelServerDown")

        await ends("KestrelManagerDown")
        await until(all_run, 40)
        critical = {
            name for name, rule in alerts().items() if "critical" in rule["labels"].values()
        }
        await ends(*critical)
        assert "KestrelUnmatchable" in await fires("KestrelUnmatchable")
        again = read_state(Path(pool.password_file).parent)
        assert again is not None
        assert again.manager_pid != pool.manager_pid


@contextlib.contextmanager
def nobody_mends(pool: PoolState) -> Any:
    """The supervisor stands still, so that what is killed stays dead."""
    os.kill(pool.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pool.pid, signal.SIGCONT)
