"""A real Prometheus at a real pool: every panel has something to show, and alerts come when what
they are about has happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from dashboardkit import (
    Expression,
    alerts,
    boards,
    expressions,
    raw_names,
    recordings,
    substituted,
)
from prometheuskit import Prometheus, Series, results, seen_by_prometheus, until, watched

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local
from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.local.throw_away_flock import throw_away_flock
from kestrelctl.protocol import requests as rq

#: Only with TLS, and with several managers, which a pool on one machine has not.
NOT_HERE = {"kestrel_certificate_expiry_timestamp_seconds", "kestrel_managers_standing_by"}

#: An environment for it costs a moment: nothing is in it.
CLASSES = """
[environment.tiny]
kind = "venv"
tags = ["tiny"]
"""

# -- panels ----------------------------------------------------------------------------------------


async def test_every_panel_and_alert_finds_its_data_in_a_pool_at_work(tmp_path: Path) -> None:
    script = "sleep 0.02; exit $((KESTREL_TASK_ID % 80 == 0))"
    work = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=400, max_failures=2)
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
            tiny = JobSpec(program=Program(argv=("/bin/true",)), requires=("TINY",))
            await user.ask(rq.SubmitJob(spec=tiny, watch=True))
            assert (await anext(user.pushed())).job.done == 1
        async with connect_local(pool, admin=True) as admin:
            await admin.ask(rq.SetAsset(name="licences", total=3))
        licensed = {"cpus": 1.0, "licences": 1.0}
        await user.ask(
            rq.SubmitJob(
                spec=JobSpec(program=Program(argv=("/bin/sleep", "300")), request=licensed)
            )
        )
        await user.ask(
            rq.SubmitJob(spec=JobSpec(program=Program(argv=("/bin/sleep", "300")), count=20))
        )

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
    nowhere = JobSpec(
        program=Program(argv=("/bin/true",)), requires=("a-tag-that-nobody-has",), count=3
    )
    work = JobSpec(program=Program(argv=("/bin/sleep", "300")), count=workers)
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
            expected = {"KestrelNoWorkers", "KestrelWorkerDown", "KestrelHighLossRate"}
            assert set(await fires(*expected)) == expected
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
