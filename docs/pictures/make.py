"""Makes the pictures beside it: `.venv/bin/python docs/pictures/make.py`, in seven to nine minutes.

A flock of two pools works for three users while a Prometheus looks on; then `bench` sweeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/dashboards"))

from board_drawing import draw_board
from dashboardkit import boards, substituted
from prometheuskit import Prometheus, seen_by_prometheus

from kestrelctl.bench.machine import this_machine
from kestrelctl.cli.show.grid import rich_text
from kestrelctl.cli.show.history import History
from kestrelctl.cli.top.frame import View, frame
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local
from kestrelctl.local.flock_membership import flock_domain
from kestrelctl.local.pool_state import PoolState
from kestrelctl.local.throw_away_flock import throw_away_flock
from kestrelctl.protocol.answers import Overview, Submitted
from kestrelctl.protocol.requests import PoolOverview, SetAsset, SubmitJob
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

PICTURES = Path(__file__).parent
WORKERS = 8
GIB = 2**30
COLUMNS, LINES = 100, 27
#: When, in seconds after the first look: of `top`, when a worker process is killed, of the end.
KILL_AT, TOP_AT, END_AT = 75, 100, 150
SWEEP = (
    "bench", "--sweep", "--workers", "10,100,917", "--sleep", "0,0.01,0.03,0.1,0.3,1,3",
    "--cell-seconds", "8",
)  # fmt: skip

#: As rich's own, without its web fonts.
TERMINAL = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kestrel-") as name:
        await draw_pool(Path(name))
    draw_sweep()
    for file in sorted(PICTURES.glob("*.svg")):
        print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


async def draw_pool(directory: Path) -> None:
    """Writes `top.svg` and `dashboard.svg`."""
    (directory / "flock/home").mkdir(parents=True, mode=0o700)
    server = PrivateServer.create(directory / "flock/home/server", flock_domain("home"))
    passwords = {
        name: server.add_account(f"{name}@{server.users_domain}") for name in ("ada", "ben", "cleo")
    }
    async with contextlib.AsyncExitStack() as stack:
        workers = {"home": WORKERS, "near": 4}
        flock = await stack.enter_async_context(
            throw_away_flock(directory / "flock", workers, metrics=True)
        )
        pool = flock.pools["home"]
        admin = await stack.enter_async_context(connect_local(pool, admin=True))
        users = {
            name: await stack.enter_async_context(
                connect_user(
                    f"{name}@users.{pool.domain}", password, pool.domain, pool.host, pool.port,
                    tls=False,
                )
            )
            for name, password in passwords.items()
        }  # fmt: skip
        prometheus = await stack.enter_async_context(seen_by_prometheus(directory, pool, WORKERS))
        await admin.ask(SetAsset(name="licences", total=2))
        began = time.time()
        work = asyncio.create_task(submit(users))
        asyncio.get_running_loop().call_later(KILL_AT, kill_worker_process, pool)
        history = await watch(admin, began + TOP_AT)
        (PICTURES / "top.svg").write_text(terminal(history))
        await watch(admin, began + END_AT)
        await work
        (PICTURES / "dashboard.svg").write_bytes(await dashboard(prometheus, began, began + END_AT))


async def submit(users: Mapping[str, UserConnection]) -> None:
    """Three users' work over the time: commands that sleep, so that one machine is enough."""

    async def job(user: str, spec: JobSpec) -> int:
        answer = await users[user].ask(SubmitJob(spec=spec))
        assert isinstance(answer, Submitted)
        return answer.job_id

    def shell(script: str) -> Program:
        return Program(argv=("/bin/sh", "-c", script))

    small = {"cpus": 1.0, "memory": 0.5 * GIB}
    await asyncio.sleep(5)
    unpacking = JobSpec(program=shell("sleep 0.7"), name="unpack-scans", count=100, request=small)
    await job("ada", unpacking)
    await asyncio.sleep(15)
    aligns = shell("sleep $((KESTREL_TASK_ID % 3 + 1))")
    await job("ada", JobSpec(program=aligns, name="align-scans", count=480, request=small))
    await asyncio.sleep(15)
    fails = shell("sleep 1.$((KESTREL_TASK_ID % 9)); exit $((KESTREL_TASK_ID % 60 == 0))")
    large = {"cpus": 1.0, "memory": 1.5 * GIB}
    await job("ben", JobSpec(program=fails, name="render-frames", count=420, request=large))
    await asyncio.sleep(15)
    licensed = {"cpus": 1.0, "memory": 1.0 * GIB, "licences": 1.0}
    solving = JobSpec(
        program=shell("sleep 5"), name="solve-flows", count=40, request=licensed, stays=True
    )
    solve = await job("cleo", solving)
    solved = After(solve, solve)
    await job(
        "cleo",
        JobSpec(
            program=shell("sleep 1"), name="plot-flows", count=40, request=small, after=(solved,)
        ),
    )


def kill_worker_process(pool: PoolState) -> None:
    os.killpg(pool.worker_pids[0], signal.SIGKILL)


async def watch(admin: UserConnection, until: float) -> History:
    """What `top` collects."""
    history: History | None = None
    while time.time() < until:
        found = await admin.ask(PoolOverview())
        assert isinstance(found, Overview)
        if history is None:
            history = History(found)
        else:
            history.add(found)
        await asyncio.sleep(1)
    assert history is not None
    return history


def terminal(history: History) -> str:
    """The screen of `kestrelctl top` as SVG."""
    from rich.console import Console

    console = Console(
        record=True, width=COLUMNS, height=LINES, file=StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False,
    )  # fmt: skip
    console.print(rich_text(frame(history, View(), time.time(), COLUMNS, LINES)))
    return console.export_svg(title="kestrelctl top", code_format=TERMINAL, unique_id="top")


async def dashboard(prometheus: Prometheus, began: float, ended: float) -> bytes:
    """The dashboard of a pool, from the answers to its queries."""

    async def ask(target: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        answer = await prometheus.ask(
            "query_range", query=substituted(target["expr"]), start=began, end=ended, step=3
        )
        return [
            {**each, "values": [(at - began, value) for at, value in each["values"]]}
            for each in answer["result"]
        ]

    machine = this_machine("")
    day = datetime.now(UTC).date().isoformat()
    foot = f"Kestrel {machine.kestrel}, {day}, {machine.cores} cores ({machine.cpu_model})"
    return lightened(await draw_board(boards()["kestrel-overview"], ask, ended - began, foot))


def draw_sweep() -> None:
    """Writes `bench.svg`."""
    with tempfile.TemporaryDirectory(prefix="kestrel-") as name:
        command = [sys.executable, "-m", "kestrelctl", *SWEEP, "--report", name]
        subprocess.run(command, check=True)
        image = (Path(name) / "efficiency.svg").read_bytes()
    (PICTURES / "bench.svg").write_bytes(lightened(image))


def lightened(svg: bytes) -> bytes:
    """A picture of matplotlib without what names other hosts, and hundredths of a point at most."""
    svg = re.sub(rb"<!DOCTYPE.*?>\s*|<metadata>.*?</metadata>\s*", b"", svg, flags=re.DOTALL)
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), svg)


if __name__ == "__main__":
    asyncio.run(main())
