"""A real Prometheus at a real pool, for tests and pictures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml
from dashboardkit import RULES, Expression, tool

from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.pool_state import PoolState
from kestrelctl.xmpp.prosody import free_ports

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
        """The alerts that fire now, by name; not the one that always does."""
        found = (await self.ask("alerts"))["alerts"]
        firing = {each["labels"]["alertname"]: each for each in found if each["state"] == "firing"}
        firing.pop("Watchdog", None)
        return firing


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
