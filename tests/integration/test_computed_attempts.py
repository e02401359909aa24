"""What was computed is not computed again when its worker's process ends too early."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from test_execution import Machine, until
from test_stages import Stages, a_stage
from test_task_outputs import Share

from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.stage import OUT, RUN, SETUP
from kestrelctl.core.model.job.template import Template
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.run.executor import CommandSpec, Completion

NUMBER = 7


def held(number: int = NUMBER) -> HeldAttempt:
    return HeldAttempt(
        account="w1@pool",
        number=number,
        template=Template(job_id=1, program=Program(argv=("true",))),
        index=0,
        item=None,
        amounts={"cpus": 1000},
        units={},
        seal=(number, 1, 0, 1, 99),
        count=1,
        limits={},
        hosts=(),
        waited_seconds=0.5,
    )


class Days:
    """A worker's directory, and one process after another that has it.

    Attributes:
        share: where outputs go.
        gate: a file for which scripts wait.
    """

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.share = Share()
        self.gate = tmp_path / "gate"
        self.sandboxes = tmp_path / "work" / "sandboxes"
        self.records = tmp_path / "work" / "computed"
        self.now: Stages

    def begin(self) -> Stages:
        stage = OutputStage(
            self._tmp_path / "outgoing", self.share, is_online=lambda: True, now=lambda: 0.0
        )
        self.now = Stages(self._tmp_path, output_stage=stage)
        return self.now

    async def end(self) -> None:
        await self.now.executor.close()

    async def begin_anew(self) -> Stages:
        await self.end()
        return self.begin()

    @property
    def waits(self) -> str:
        """A script that ends when the gate is open."""
        return f"until test -e {self.gate}; do sleep 0.01; done"

    def command(self, script: str, **more: object) -> CommandSpec:
        names = Program.__struct_fields__
        program = {name: value for name, value in more.items() if name in names}
        others = {"held": held()} | {name: more[name] for name in more if name not in names}
        return CommandSpec(
            NUMBER,
            Program(argv=("/bin/sh", "-c", script), **program),  # type: ignore[arg-type]
            {"PATH": os.environ["PATH"]},
            **others,  # type: ignore[arg-type]
        )

    async def goes_on(self) -> Completion:
        """Has the only attempt that was left go on, to its end."""
        [command] = self.now.executor.left()
        self.gate.touch()
        self.now.executor.start(command)
        assert self.now.executor.left() == []
        return await self.now.exit_of(command.number)


@pytest.fixture
async def days(tmp_path: Path) -> AsyncIterator[Days]:
    days = Days(tmp_path)
    days.begin()
    yield days
    await days.end()


async def test_out_goes_on_in_the_same_directory_and_the_command_does_not_run_again(
    days: Days,
) -> None:
    note = days.now.note
    command = days.command(
        f"{note(RUN)}; echo result >file; echo computed",
        stages=(
            a_stage(SETUP, note(SETUP)),
            a_stage(OUT, f"{note(OUT)}; {days.waits}; cat file; echo $KESTREL_STAGE"),
        ),
        cleanup=("/bin/sh", "-c", note("clean")),
    )
    days.now.executor.start(command)
    await until(lambda: OUT in days.now.noted())
    await days.begin_anew()
    assert days.now.executor.left() == [command]
    assert (await days.now.sh("ls -A")).stdout == b"", "others have directories of their own"
    days.now.exits.clear()
    ended = await days.goes_on()
    assert (ended.exit_code, ended.reason) == (0, "")
    assert ended.stdout == b"computed\nresult\nout\n"
    assert days.now.noted() == [SETUP, RUN, OUT, OUT, "clean"]
    assert days.now.begun == [OUT]
    assert [run.name for run in ended.stages] == [SETUP, RUN, OUT]
    assert os.listdir(days.records) == []
    assert (await days.begin_anew()).executor.left() == []


async def test_what_it_left_is_stored_by_the_next_process(days: Days) -> None:
    days.share.slow = True
    note = days.now.note
    days.now.executor.start(
        days.command(
            f"{note(RUN)}; echo result >file; echo text",
            outputs=("file",),
            cleanup=("/bin/sh", "-c", f"{note('clean')}; exit 2"),
        )
    )
    await until(lambda: days.share.under_way)
    await days.begin_anew()
    assert days.share.archives == []
    days.share.slow = False
    ended = await days.goes_on()
    assert (ended.exit_code, ended.reason) == (0, "cleanup-failed: exit code 2")
    assert (ended.output_files, ended.stdout) == (1, b"text\n")
    assert len(days.share.archives) == 1
    assert days.now.noted() == [RUN, "clean"]


@pytest.mark.parametrize("in_cleanup", [True, False])
async def test_an_out_that_is_over_is_not_tried_again(days: Days, in_cleanup: bool) -> None:
    days.share.slow = True
    note = days.now.note
    clean = f"{note('clean')}; {days.waits}" if in_cleanup else note("clean")
    days.now.executor.start(
        days.command(
            f"{note(RUN)}; echo result >file",
            outputs=("file",),
            stages=(a_stage(OUT, note(OUT)),),
            cleanup=("/bin/sh", "-c", clean),
        )
    )
    await until(lambda: days.share.under_way or (in_cleanup and "clean" in days.now.noted()))
    await days.begin_anew()
    days.share.slow = False
    ended = await days.goes_on()
    assert (ended.exit_code, ended.reason, ended.output_files) == (0, "", 1)
    assert days.now.noted() == [RUN, OUT, "clean", *(["clean"] if in_cleanup else [])]
    assert [run.name for run in ended.stages] == [RUN, OUT]


async def test_a_failed_out_stays_failed(days: Days) -> None:
    note = days.now.note
    days.now.executor.start(
        days.command(
            note(RUN),
            stages=(a_stage(OUT, f"{note(OUT)}; exit 3"),),
            cleanup=("/bin/sh", "-c", f"{note('clean')}; {days.waits}"),
        )
    )
    await until(lambda: "clean" in days.now.noted())
    await days.begin_anew()
    assert (await days.goes_on()).reason == "stage out: exit code 3"
    assert days.now.noted() == [RUN, OUT, "clean", "clean"]


async def test_what_still_computes_ends_with_its_process(days: Days) -> None:
    days.now.executor.start(
        days.command(
            f"{days.now.note(RUN)}; touch file; {days.waits}",
            stages=(a_stage(OUT, days.now.note(OUT)),),
        )
    )
    await until(days.now.noted)
    await days.begin_anew()
    assert days.now.executor.left() == []
    await until(lambda: os.listdir(days.sandboxes) == [])


async def test_a_command_that_nobody_can_hold_again_is_not_kept(days: Days) -> None:
    out = a_stage(OUT, f"{days.now.note(OUT)}; {days.waits}")
    days.now.executor.start(days.command("true", stages=(out,), held=None))
    await until(days.now.noted)
    await days.begin_anew()
    assert days.now.executor.left() == []


async def test_a_command_with_nothing_to_do_after_it_costs_no_file(days: Days) -> None:
    days.now.executor.start(
        days.command(
            "true", stages=(a_stage(SETUP, "true"),), cleanup=("/bin/ls", str(days.records))
        )
    )
    assert (await days.now.exit_of(NUMBER)).stdout == b""


async def test_what_is_dropped_leaves_nothing(days: Days) -> None:
    out = a_stage(OUT, f"{days.now.note(OUT)}; {days.waits}")
    days.now.executor.start(days.command("echo >file", stages=(out,)))
    await until(days.now.noted)
    await days.begin_anew()
    assert len(os.listdir(days.sandboxes)) == 1
    assert not days.now.executor.kill(NUMBER)
    assert days.now.executor.left() == []
    assert os.listdir(days.records) == os.listdir(days.sandboxes) == []


async def test_a_kill_ends_what_goes_on(days: Days) -> None:
    out = a_stage(OUT, f"{days.now.note(OUT)}; {days.waits}")
    days.now.executor.start(days.command("echo >file", stages=(out,)))
    await until(days.now.noted)
    await days.begin_anew()
    [command] = days.now.executor.left()
    days.now.executor.start(command)
    await until(lambda: days.now.noted() == [OUT, OUT])
    assert days.now.executor.kill(NUMBER)
    ended = await days.now.exit_of(NUMBER)
    assert (ended.exit_code, ended.reason) == (0, "cancelled")
    assert os.listdir(days.records) == []


def cut_short(record: Path) -> None:
    record.write_bytes(record.read_bytes()[:-20])


def of_another_version(record: Path) -> None:
    told = json.loads(record.read_bytes())
    del told["sandbox"]
    record.write_text(json.dumps(told))


def under_another_number(record: Path) -> None:
    record.rename(record.with_name("8"))


@pytest.mark.parametrize("breaks", [cut_short, of_another_version, under_another_number])
async def test_a_record_that_cannot_be_used_is_dropped(
    days: Days, breaks: Callable[[Path], None]
) -> None:
    out = a_stage(OUT, f"{days.now.note(OUT)}; {days.waits}")
    days.now.executor.start(days.command("echo >file", stages=(out,)))
    await until(days.now.noted)
    await days.end()
    breaks(days.records / str(NUMBER))
    days.begin()
    assert days.now.executor.left() == []
    assert os.listdir(days.records) == []
    await until(lambda: not days.sandboxes.exists() or os.listdir(days.sandboxes) == [])


@pytest.mark.parametrize("replaced", [True, False])
async def test_without_its_scratch_directory_it_runs_again(days: Days, replaced: bool) -> None:
    out = a_stage(OUT, f"{days.now.note(OUT)}; {days.waits}")
    days.now.executor.start(days.command("echo >file", stages=(out,)))
    await until(days.now.noted)
    await days.end()
    [scratch] = days.sandboxes.glob("*/scratch")
    scratch.rename(scratch.with_name("away"))
    if replaced:
        scratch.mkdir()
    days.begin()
    ended = await days.goes_on()
    assert ended.reason == "no-resources: the scratch directory has gone"
    assert ended.exit_code is None
    assert days.now.noted() == [OUT]
    assert os.listdir(days.records) == []


async def test_an_ordinary_machine_begins_with_nothing_of_the_day_before(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.start("/bin/sh", "-c", "mkdir deep; exec sleep 60")
    await until(lambda: list(tmp_path.glob("sandboxes/*/scratch/deep")))
    await machine.executor.close()
    machine = Machine(tmp_path)
    assert list(tmp_path.glob("sandboxes/*")) == []
    await machine.executor.close()
