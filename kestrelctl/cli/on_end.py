"""`--on-end COMMAND`: what is run here, at the submitter's side, when a job has ended."""

from __future__ import annotations

import asyncio
import os

import click

from kestrelctl.cli.screen import Screen
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.core.model.shell_line import SHELL
from kestrelctl.protocol.answers import JobView

_STANDARD_ERROR = 2

on_end_option = click.option(
    "--on-end", metavar="COMMAND", help="Run this here, with a shell, when a job has ended."
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
        if self._command is not None:
            self._last = asyncio.create_task(self._run(self._command, view, self._last))

    async def finish(self) -> None:
        """Waits until all of them have been run."""
        if self._last is not None:
            await self._last

    async def _run(self, command: str, view: JobView, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        try:
            process = await asyncio.create_subprocess_exec(
                *SHELL,
                command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=_STANDARD_ERROR,
                env={**os.environ, **self._pool, **variables(view)},
            )
            code = await process.wait()
        except OSError as error:  # too many processes; an environment that is too large
            self._warn(view, error.strerror or str(error))
            return
        if code:
            self._warn(view, how_it_ended("", max(0, -code), max(0, code)))

    def _warn(self, view: JobView, why: str) -> None:
        self._screen.warn(f"the command of --on-end for job {view.job_id} failed: {why}")


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
