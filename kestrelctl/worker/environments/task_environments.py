"""Prepares the environments inside which tasks of a worker run, each once for all of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from kestrelctl.core.model.task_environment import KINDS, TaskEnvironment
from kestrelctl.environments.environment_class import EnvironmentClass
from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.venv_variables import venv_variables

#: What is prepared is looked for again after so long: who keeps the directory sees it in use.
LOOK_AGAIN_SECONDS = 3600.0


class PreparingDriver(Protocol):
    """What makes environments of one kind."""

    async def prepare(self, wanted: EnvironmentClass) -> str:
        """As `EnvironmentDriver.prepare`."""


class EnvironmentRefused(KestrelError):
    """A task cannot have its environment; the message is the reason in its report."""


class TaskEnvironments:
    """The environments of one worker's tasks.

    Args:
        recipes: a directory for recipes while environments are prepared.
        now: seconds that only grow.

    Attributes:
        drivers: by kind, those that work here.
    """

    def __init__(self, recipes: Path, now: Callable[[], float]) -> None:
        self._recipes = recipes
        self._now = now
        self.drivers: Mapping[str, PreparingDriver] = {}
        self._prepared: dict[TaskEnvironment, tuple[str, float]] = {}
        self._under_way: dict[TaskEnvironment, asyncio.Task[str]] = {}

    async def inside(self, wanted: TaskEnvironment, env: Mapping[str, str]) -> dict[str, str]:
        """The variables of a task inside an environment, which is prepared if it is not there.

        Args:
            env: its variables without that.

        Raises:
            EnvironmentRefused: it cannot be prepared.
        """
        place, at = self._prepared.get(wanted, ("", 0.0))
        if not place or self._now() - at > LOOK_AGAIN_SECONDS or not Path(place).is_dir():
            place = await self._prepare(wanted)
        return {**env, **venv_variables(place, env)}

    async def _prepare(self, wanted: TaskEnvironment) -> str:
        work = self._under_way.get(wanted)
        if work is None:
            work = self._under_way[wanted] = asyncio.get_running_loop().create_task(
                self._made(wanted)
            )
            work.add_done_callback(lambda done: self._done(wanted, done))
        # A task that is cancelled meanwhile leaves the others what they wait for.
        return await asyncio.shield(work)

    def _done(self, wanted: TaskEnvironment, work: asyncio.Task[str]) -> None:
        del self._under_way[wanted]
        if not work.cancelled() and work.exception() is None:
            self._prepared[wanted] = (work.result(), self._now())

    async def _made(self, wanted: TaskEnvironment) -> str:
        driver = self.drivers.get(wanted.kind)
        if driver is None or wanted.kind not in KINDS:
            raise EnvironmentRefused(f"no-environment: none of kind {wanted.kind} are made here")
        recipe = ""
        try:
            if wanted.recipe:
                self._recipes.mkdir(parents=True, exist_ok=True)
                digest = hashlib.sha256(wanted.recipe.encode()).hexdigest()[:16]
                place = self._recipes / f"tasks-{digest}"
                place.write_text(wanted.recipe)
                recipe = str(place)
            of = EnvironmentClass(name=wanted.of, kind=wanted.kind, recipe=recipe)
            return await driver.prepare(of)
        except OSError as error:
            raise EnvironmentRefused(f"no-resources: environment {wanted.of}: {error}") from error
        except KestrelError as error:
            cause = f": {error.cause}" if error.cause else ""
            raise EnvironmentRefused(
                f"no-environment: {wanted.of}: {error.message}{cause}"[:1_000]
            ) from error

    def close(self) -> None:
        """Gives up what is being prepared."""
        for work in self._under_way.values():
            work.cancel()
