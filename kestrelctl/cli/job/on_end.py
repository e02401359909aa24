"""`--on-end COMMAND`: what is run here, at the submitter's side, when a job has ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import click

from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.job.shell_text import SHELL
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.protocol.answers import JobView

_STANDARD_ERROR = 2

on_end_option = click.option(
    "--on-end",
    metavar="COMMAND",
    help="Run a shell command on this machine when a job has ended; "
    "it finds $KESTREL_JOB and $KESTREL_OUTCOME.",
)


class OnEnd:
    """Runs a command for each job that has ended, one after the other.

    What the command prints goes to standard error: standard output is what scripts read. Its
    failure is told and changes nothing else.

    Args:
        command: a line for the shell; None for nothing to be run.
        pool: which one the job is in, as the user said; empty if he did not.
    """

    def __init__(self, command: str | None, screen: Screen, pool: str) -> None:
        self._command = command
        self._screen = screen
        self._pool = {"KESTREL_POOL": pool} if pool else {}
        self._last: asyncio.Task[None] | None = None

    def begin(self, view: JobView) -> None:
        """A job has ended: its command runs as soon as those before it have."""
        self._begin(f"job {view.job_id}", variables(view))

    def begin_once(self, ids: str, views: Sequence[JobView]) -> None:
        """The same of several jobs that were submitted as one, when the last of them has ended.

        Args:
            ids: theirs, as commands take them.
        """
        self._begin(f"jobs {ids}", variables_of_several(ids, views))

    def _begin(self, whose: str, found: dict[str, str]) -> None:
        if self._command is not None:
            self._last = asyncio.create_task(self._run(self._command, whose, found, self._last))

    async def finish(self) -> None:
        """Waits until all of them have been run."""
        if self._last is not None:
            await self._last

    async def _run(
        self,
        command: str,
        whose: str,
        found: dict[str, str],
        before: asyncio.Task[None] | None,
    ) -> None:
        if before is not None:
            await before
        try:
            process = await asyncio.create_subprocess_exec(
                *SHELL,
                command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STANDARD_ERROR,
                env={**os.environ, **self._pool, **found},
            )
            code = await process.wait()
        except OSError as error:  # too many processes; an environment that is too large
            self._warn(whose, error.strerror or str(error))
            return
        if code:
            self._warn(whose, how_it_ended("", max(0, -code), max(0, code)))

    def _warn(self, whose: str, why: str) -> None:
        self._screen.warn(f"the command of --on-end for {whose} failed: {why}")


def variables(view: JobView) -> dict[str, str]:
    """What the command finds of a job in its environment. `docs/cli.md` lists the variables."""
    return {
        "KESTREL_JOB": str(view.job_id),
        "KESTREL_JOB_NAME": view.name,
        "KESTREL_OUTCOME": view.state,
        "KESTREL_STOPPED_BY": view.stopped_by,
        "KESTREL_TASKS": str(view.tasks),
        "KESTREL_DONE": str(view.done),
        "KESTREL_FAILED": str(view.failed),
        "KESTREL_LOST": str(view.lost),
        "KESTREL_CANCELLED": str(view.cancelled),
    }


def variables_of_several(ids: str, views: Sequence[JobView]) -> dict[str, str]:
    """The same of several jobs: their ids, what became of them together, and sums of counts."""
    states = {view.state for view in views}
    bad = next((state for state in ("failed", "cancelled") if state in states), "done")
    together = JobView(
        job_id=0,
        name="",
        owner=views[0].owner,
        state=bad,
        submitted_at=views[0].submitted_at,
        tasks=sum(view.tasks for view in views),
        done=sum(view.done for view in views),
        failed=sum(view.failed for view in views),
        lost=sum(view.lost for view in views),
        cancelled=sum(view.cancelled for view in views),
    )
    return {**variables(together), "KESTREL_JOB": ids}
