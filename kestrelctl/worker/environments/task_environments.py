"""Prepares the environments inside which tasks of a worker run, each once for all of them."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.job.task_environment import KINDS, TaskEnvironment
from kestrelctl.core.model.result import MOST_REASON_CHARACTERS
from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.one_making import OneMaking
from kestrelctl.worker.environments.venv_variables import venv_variables
from kestrelctl.worker.run.executor import AttemptRefused


class PreparingDriver(Protocol):
    """Makes environments of one kind."""

    async def prepare(self, wanted: EnvironmentClass) -> str:
        """See `EnvironmentDriver.prepare`."""


class EnvironmentRefused(AttemptRefused):
    """A task cannot have its environment."""


class Inside(NamedTuple):
    """The variables of a task that runs inside an environment, and how it leaves.

    Attributes:
        env: its variables.
        leave: to be called when the task has ended: until then the environment is kept.
    """

    env: dict[str, str]
    leave: Callable[[], None]


class TaskEnvironments:
    """The environments of one worker's tasks.

    Args:
        recipes: a directory for recipes while environments are prepared.

    Attributes:
        drivers: the drivers that work here, by kind.
    """

    def __init__(self, recipes: Path) -> None:
        self._recipes = recipes
        self.drivers: Mapping[str, PreparingDriver] = {}
        self._prepared: dict[tuple[str, str], str] = {}
        self._making = OneMaking[str]()
        self._users: Counter[str] = Counter()

    async def inside(self, wanted: TaskEnvironment, env: Mapping[str, str]) -> Inside:
        """Lets a task into an environment, which is prepared if it is not there.

        Args:
            env: its variables without the environment.

        Raises:
            EnvironmentRefused: it cannot be prepared.
        """
        made_of = (wanted.kind, wanted.recipe)
        place = self._prepared.get(made_of, "")
        if not place or not _is_used_now(place):
            place = self._prepared[made_of] = await self._prepare(wanted)
        self._users[place] += 1
        return Inside({**env, **venv_variables(place, env)}, partial(self._leave, place))

    def in_use(self) -> list[str]:
        """Lists the environments that some task is inside of."""
        return list(self._users)

    def _leave(self, place: str) -> None:
        self._users[place] -= 1
        self._users += Counter()  # drops those that nobody is inside of

    async def _prepare(self, wanted: TaskEnvironment) -> str:
        driver = self.drivers.get(wanted.kind)
        if driver is None or wanted.kind not in KINDS:
            raise EnvironmentRefused(
                EndKind.NO_ENVIRONMENT, f"none of kind {wanted.kind} are made here"
            )
        made_of = (wanted.kind, wanted.recipe)
        try:
            return await self._making.of(made_of, lambda: self._made(driver, *made_of))
        except OSError as error:
            why = f"environment {wanted.of}: {error}"
            raise EnvironmentRefused(EndKind.NO_RESOURCES, why) from error
        except KestrelError as error:
            cause = f": {error.cause}" if error.cause else ""
            why = f"{wanted.of}: {error.message}{cause}"[:MOST_REASON_CHARACTERS]
            raise EnvironmentRefused(EndKind.NO_ENVIRONMENT, why) from error

    async def _made(self, driver: PreparingDriver, kind: str, recipe: str) -> str:
        if not recipe:
            return await driver.prepare(EnvironmentClass(name="tasks", kind=kind))
        self._recipes.mkdir(parents=True, exist_ok=True)
        place = self._recipes / f"tasks-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
        place.write_text(recipe)
        try:
            of = EnvironmentClass(name="tasks", kind=kind, recipe=str(place))
            return await driver.prepare(of)
        finally:
            place.unlink(missing_ok=True)

    def close(self) -> None:
        """Gives up what is being prepared."""
        self._making.close()


def _is_used_now(place: str) -> bool:
    """Notes that a directory is used; False if it has gone."""
    with suppress(OSError):
        os.utime(place)
        return True
    return False
