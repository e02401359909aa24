"""`--on-end COMMAND`: a command that runs here, at the submitter's side, when a job has ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.job.shell_text import SHELL
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.protocol.job_answers import JobView

_STANDARD_ERROR = 2


class OnEnd:
    """Runs a command for each job that has ended, one after the other.

    The output of the command goes to standard error, because scripts read standard output. If the
    command fails, the user is told, and nothing else changes.

    Args:
        command: a line for the shell; None if nothing is to be run.
        pool: the pool of the job, as the user named it; empty if the user named none.
    """

    def __init__(self, command: str | None, screen: Screen, pool: str) -> None:
        self._command = command
        self._screen = screen
        self._pool = {"KESTREL_POOL": pool} if pool else {}
        self._last: asyncio.Task[None] | None = None

    def begin(self, view: JobView) -> None:
        """Runs the command for a job that has ended, after the commands that began before."""
        self._begin(f"job {view.job_id}", variables(view))

    def begin_once(self, ids: str, views: Sequence[JobView]) -> None:
        """Runs the command once for several jobs submitted as one, when the last has ended.

        Args:
            ids: the ids of the jobs, as commands take them.
        """
        self._begin(f"jobs {ids}", variables_of_several(ids, views))

    def _begin(self, whose: str, found: dict[str, str]) -> None:
        if self._command is not None:
            self._last = asyncio.create_task(self._run(self._command, whose, found, self._last))

    async def finish(self) -> None:
        """Waits until all commands have ended."""
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
    """The environment variables that tell the command about a job; `docs/cli.md` lists them."""
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
    """The same for several jobs: their ids, their common outcome, and sums of their counts."""
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
