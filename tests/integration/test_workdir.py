"""Tasks that start in the directory of their job, on each rung that this machine has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import rungs
from test_execution import PATH, Machine

from kestrelctl.core.model.job.program import Program
from kestrelctl.worker.run.executor import CommandSpec, Completion


class Desk:
    """A worker that lets jobs choose, and a directory of its user's."""

    def __init__(self, directory: Path, rung: str, *, any_workdir: bool = True) -> None:
        self.work = directory / "work"
        self.work.mkdir()
        data = directory / "data"
        made = rungs.make_rung(rung, data)
        self.machine = Machine(data / "tasks", made, any_workdir=any_workdir)
        self._number = 0

    async def run(
        self, *argv: str, workdir: str | None = None, cleanup: tuple[str, ...] = ()
    ) -> Completion:
        """Runs a task there, or in the directory that is named."""
        self._number += 1
        where = str(self.work) if workdir is None else workdir
        command = CommandSpec(
            self._number, Program(argv=argv, cleanup=cleanup, workdir=where), {"PATH": PATH}
        )
        self.machine.executor.start(command)
        return await self.machine.exit_of(self._number)


@pytest.fixture(params=rungs.available())
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, request.param)
    yield desk
    await desk.machine.executor.close()


async def test_a_task_finds_programs_and_leaves_files_there(desk: Desk) -> None:
    program = desk.work / "simulate"
    program.write_text('#!/bin/sh\npwd; echo told >&2; echo "$1" >>results\n')
    program.chmod(0o755)
    cleanup = ("/bin/sh", "-c", "echo clean >>results")
    for word in ("a", "b"):
        ended = await desk.run("./simulate", word, cleanup=cleanup)
        assert (ended.exit_code, ended.reason) == (0, "")
        assert (ended.stdout, ended.stderr) == (f"{desk.work}\n".encode(), b"told\n")
    assert (desk.work / "results").read_text() == "a\nclean\nb\nclean\n"
    assert not list(desk.work.glob("std*")), "its output goes where output goes"


async def test_the_scratch_directory_is_there_too_and_is_emptied(desk: Desk) -> None:
    script = 'ls -A "$KESTREL_SCRATCH"; : >"$KESTREL_SCRATCH/mine"; pwd'
    for _ in range(2):
        ended = await desk.run("/bin/sh", "-c", script)
        assert ended.stdout == f"{desk.work}\n".encode()
    ended = await desk.run("/bin/sh", "-c", '[ "$PWD" = "$KESTREL_SCRATCH" ] && ls -A', workdir="")
    assert (ended.exit_code, ended.stdout) == (0, b"")


async def test_a_directory_that_cannot_be_entered_fails_the_task_and_says_so(desk: Desk) -> None:
    missing = str(desk.work / "missing")
    ended = await desk.run("/bin/true", workdir=missing)
    assert ended.reason == (
        f"cannot-start: the directory of the job: No such file or directory: {missing!r}"
    )
    (desk.work / "file").touch()
    ended = await desk.run("/bin/true", workdir=str(desk.work / "file"))
    assert "Not a directory" in ended.reason
    ended = await desk.run("./missing")
    assert f"(from {str(desk.work)!r}, where the task begins)" in ended.reason
    assert (await desk.run("/bin/true")).exit_code == 0


async def test_a_link_leads_where_it_does_when_a_task_starts(desk: Desk, tmp_path: Path) -> None:
    link = tmp_path / "current"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / name)
        ended = await desk.run("/bin/sh", "-c", "pwd -P", workdir=str(link))
        assert (ended.exit_code, ended.stdout) == (0, f"{tmp_path / name}\n".encode()), ended


async def test_a_worker_does_not_stay_in_the_directory(desk: Desk) -> None:
    before = Path.cwd()  # one that stayed would keep its file system from being unmounted
    for program in ("/bin/true", "./missing"):
        await desk.run(program)
        assert Path.cwd() == before


async def test_a_worker_that_lets_nobody_choose_refuses(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "plain", any_workdir=False)
    try:
        ended = await desk.run("/bin/true")
        assert ended.reason == "cannot-start: this worker runs tasks in scratch directories only"
    finally:
        await desk.machine.executor.close()
