"""Stages of tasks as real processes: in their order, each with limits and tries of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import rungs
from test_execution import Machine, until

from kestrelctl.core.model.job.stage import IN, OUT, RUN, SETUP, Stage
from kestrelctl.worker.run import stage_state
from kestrelctl.worker.run.executor import Completion


def a_stage(name: str, script: str, *, limit: float | None = None, tries: int = 1) -> Stage:
    argv = ("/bin/sh", "-c", script)
    return Stage(name=name, argv=argv, time_limit_seconds=limit, tries=tries)


class Stages(Machine):
    """A machine, and the stages that it has said to begin.

    Attributes:
        notes: a file for what tasks write outside their scratch directories.
    """

    def __init__(self, tmp_path: Path, rung: str = "plain", **options: Any) -> None:
        self.begun: list[str] = []
        self.notes = tmp_path / "notes"
        super().__init__(
            tmp_path / "work",
            rungs.make_rung(rung, tmp_path / "work", shares=[tmp_path]),
            on_stage=lambda number, name: self.begun.append(name),
            **options,
        )

    def noted(self) -> list[str]:
        return self.notes.read_text().split() if self.notes.exists() else []

    def note(self, word: str) -> str:
        """A script that notes a word."""
        return f"echo {word} >>{self.notes}"

    async def staged(self, script: str, *stages: Stage, **more: Any) -> Completion:
        return await self.sh(script, stages=stages, **more)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_state, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture(params=rungs.available())
async def each(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stages]:
    """One for each kind of isolation."""
    found = Stages(tmp_path, request.param, output_limit_bytes=1 << 20)
    yield found
    await found.executor.close()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Stages]:
    found = Stages(tmp_path)
    yield found
    await found.executor.close()


def names(ended: Completion) -> list[str]:
    return [run.name for run in ended.stages]


# ---- in their order


async def test_stages_run_one_after_another_in_one_directory(each: Stages) -> None:
    step = "echo $KESTREL_STAGE; echo $KESTREL_STAGE >>steps; cat steps >&2; pwd >>where"
    ended = await each.staged(
        f"{step}; read line || echo nothing to read",
        a_stage(OUT, f"{step}; sort -u where | wc -l; test $KESTREL_SCRATCH = $PWD"),
        a_stage(SETUP, step),
        a_stage(IN, step),
        cleanup=("/bin/sh", "-c", 'echo "clean${KESTREL_STAGE-}"; cat steps'),
    )
    assert (ended.exit_code, ended.reason) == (0, "")
    assert ended.stdout.decode().split("\n")[:-1] == [
        *("setup", "in", "run", "nothing to read", "out", "1"),
        *("clean", "setup", "in", "run", "out"),
    ]
    assert ended.stderr.decode().split()[-4:] == [SETUP, IN, RUN, OUT]
    assert each.begun == names(ended) == [SETUP, IN, RUN, OUT]
    assert all(run.tries == 1 and run.wall_seconds > 0 for run in ended.stages)
    assert (await each.sh("ls -A; echo ${KESTREL_STAGE-none}")).stdout == b"none\n"


async def test_what_is_measured_is_the_commands_own(machine: Stages) -> None:
    burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    thrice = f"{burn}; {burn}; {burn}; sleep 0.3"
    ended = await machine.staged("sleep 0.05", a_stage(SETUP, thrice), a_stage(OUT, thrice))
    setup, run, out = ended.stages
    assert setup.wall_seconds > 0.3
    assert out.wall_seconds > 0.3
    assert 0.05 < ended.wall_seconds <= run.wall_seconds < setup.wall_seconds
    plain = await machine.sh(f"{burn}; sleep 0.05")
    assert ended.cpu_seconds < plain.cpu_seconds


async def test_a_command_without_stages_says_nothing_of_them(machine: Stages) -> None:
    assert (await machine.sh("true")).stages == ()
    assert machine.begun == []


# ---- failures


@pytest.mark.parametrize("name", [SETUP, IN])
async def test_the_command_does_not_run_if_what_is_before_it_fails(each: Stages, name: str) -> None:
    ended = await each.staged(
        each.note(RUN),
        a_stage(name, "echo half >file; exit 3"),
        a_stage(OUT, each.note(OUT)),
        cleanup=("/bin/sh", "-c", f"cat file >>{each.notes}"),
    )
    assert (ended.exit_code, ended.signal, ended.reason) == (
        None,
        None,
        f"stage {name}: exit code 3",
    )
    assert each.noted() == ["half"], "the cleanup alone ran"
    assert names(ended) == [name]
    assert (await each.sh("ls -A")).stdout == b""


async def test_out_is_not_tried_if_the_command_failed(each: Stages) -> None:
    ended = await each.staged(
        "exit 4",
        a_stage(OUT, each.note(OUT)),
        cleanup=("/bin/sh", "-c", each.note("clean")),
    )
    assert (ended.exit_code, ended.reason) == (4, "")
    assert each.noted() == ["clean"]
    assert names(ended) == [RUN]


async def test_but_if_its_exit_is_a_success(machine: Stages) -> None:
    ended = await machine.staged("exit 4", a_stage(OUT, machine.note(OUT)), success_exits=((4, 4),))
    assert (ended.exit_code, ended.reason) == (4, "")
    assert machine.noted() == [OUT]


async def test_a_failed_out_is_tried_again_and_the_command_is_not(each: Stages) -> None:
    flaky = f"{each.note(OUT)}; test $(grep -c {OUT} {each.notes}) = 3"
    ended = await each.staged(each.note(RUN), a_stage(OUT, flaky, tries=5))
    assert (ended.exit_code, ended.reason) == (0, "")
    assert each.noted() == [RUN, OUT, OUT, OUT]
    assert each.begun == [RUN, OUT], "a try is no new stage"
    assert ended.stages[1].tries == 3


async def test_without_a_try_left_the_attempt_has_failed(each: Stages) -> None:
    ended = await each.staged(
        each.note(RUN),
        a_stage(OUT, f"{each.note(OUT)}; kill -9 $$", tries=2),
        cleanup=("/bin/sh", "-c", each.note("clean")),
    )
    assert (ended.exit_code, ended.reason) == (0, "stage out: signal 9")
    assert not ended.is_success(())
    assert each.noted() == [RUN, OUT, OUT, "clean"]
    assert ended.stages[1].tries == 2


async def test_the_limit_is_that_of_each_try(machine: Stages) -> None:
    ended = await machine.staged(
        "true", a_stage(IN, f"{machine.note(IN)}; sleep 60", limit=0.1, tries=2)
    )
    assert ended.reason == "stage in: time-limit"
    assert machine.noted() == [IN, IN]
    assert ended.stages[0].wall_seconds > 0.2


async def test_the_limit_of_the_job_is_that_of_its_command(machine: Stages) -> None:
    ended = await machine.staged(
        "sleep 0.2", a_stage(IN, "sleep 0.6"), a_stage(OUT, "sleep 0.6"), limit=0.5
    )
    assert (ended.exit_code, ended.reason) == (0, "")
    ended = await machine.staged("sleep 60", a_stage(IN, "true"), limit=0.1)
    assert (ended.signal, ended.reason) == (signal.SIGTERM, "time-limit")
    assert names(ended) == [IN, RUN]


async def test_what_cannot_be_started_has_failed_as_well(machine: Stages) -> None:
    stage = Stage(name=SETUP, argv=("no-such-program",), tries=2)
    ended = await machine.staged(machine.note(RUN), stage)
    assert ended.reason.startswith("stage setup: cannot-start: ")
    assert (ended.stages[0].tries, machine.noted()) == (2, [])
    number = machine.start("no-such-program", stages=(a_stage(SETUP, "echo text >&2"),))
    ended = await machine.exit_of(number)
    assert ended.reason.startswith("cannot-start: ")
    assert (names(ended), ended.stderr) == ([SETUP, RUN], b"text\n")


async def test_a_task_that_could_not_be_started_leaves_no_links(
    machine: Stages, tmp_path: Path
) -> None:
    (tmp_path / "input").write_text("alpha")
    links = (("in", str(tmp_path / "input")),)
    ended = await machine.run("no-such-program", links=links)
    assert ended.reason.startswith("cannot-start: ")
    assert (await machine.sh("ls")).stdout == b"", "for the next task, which has none"
    assert (await machine.sh("cat in", links=links)).stdout == b"alpha"


# ---- kills


@pytest.mark.parametrize("name", [SETUP, IN, OUT])
async def test_a_kill_ends_a_stage_and_all_that_would_follow(each: Stages, name: str) -> None:
    number = each.start(
        "/bin/true",
        stages=(a_stage(name, f"{each.note(name)}; exec sleep 60", tries=9),),
        cleanup=("/bin/sh", "-c", each.note("clean")),
    )
    await until(lambda: each.noted() == [name])
    assert each.executor.kill(number)
    ended = await each.exit_of(number)
    assert (ended.reason, ended.exit_code) == ("cancelled", 0 if name == OUT else None)
    assert each.noted() == [name, "clean"]
    assert not ended.is_success(())


async def test_a_kill_between_two_tries_ends_them(
    machine: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_state, "FIRST_PAUSE_SECONDS", 1000.0)
    number = machine.start(
        "/bin/true",
        stages=(a_stage(IN, machine.note("$$") + "; exit 1", tries=9),),
        cleanup=("/bin/sh", "-c", machine.note("clean")),
    )
    await until(machine.noted)
    [pid] = machine.noted()
    await until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert machine.executor.kill(number, "enough")
    assert machine.executor.kill(number), "it is not over yet"
    assert (await machine.exit_of(number)).reason == "enough"
    assert machine.noted() == [pid, "clean"]


async def test_nothing_of_an_attempt_runs_between_two_tries(
    machine: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_state, "FIRST_PAUSE_SECONDS", 1000.0)
    daemon = f"setsid sh -c 'echo $$ >>{machine.notes}; exec sleep 60' & sleep 0.2; exit 1"
    number = machine.start("/bin/true", stages=(a_stage(IN, daemon, tries=2),))
    await until(machine.noted)
    [pid] = map(int, machine.noted())
    await until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert number not in machine.exits
    machine.executor.kill(number)
    await machine.exit_of(number)


async def test_a_worker_that_closes_waits_for_no_further_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_state, "FIRST_PAUSE_SECONDS", 1000.0)
    machine = Stages(tmp_path)
    machine.start("/bin/true", stages=(a_stage(IN, f"{machine.note(IN)}; exit 1", tries=2),))
    machine.start("/bin/true", stages=(a_stage(IN, f"{machine.note(IN)}; sleep 60", tries=2),))
    await until(lambda: machine.noted() == [IN, IN])
    await asyncio.wait_for(machine.executor.close(), 20)
    assert machine.exits == {}
