"""What a request changed, for the commands that change something."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kestrelctl.cli.command_output import CommandOutput
from kestrelctl.cli.quantities import short_address
from kestrelctl.cli.screen import Screen
from kestrelctl.core.model.plural import plural
from kestrelctl.protocol.answers import Changed


class Changes(CommandOutput):
    """Jobs or workers that were changed, and how many tasks that concerned."""

    def __init__(self, changed: Changed, verb: str, noun: str) -> None:
        """Args:
        verb: what happened to them, e.g. `cancelled`.
        noun: what they are, e.g. `job`.
        """
        self._changed = changed
        self._verb = verb
        self._noun = noun

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        data = {"changed": self._changed.what, "tasks": self._changed.tasks}
        yield ", ".join(self._changed.what), data

    async def name(self, screen: Screen) -> None:
        for each in self._changed.what:
            screen.write(f"{each}\n")

    async def tabulate(self, screen: Screen) -> None:
        if not self._changed.what:
            screen.say(f"no {self._noun} {self._verb}")
            return
        noun = self._noun if len(self._changed.what) == 1 else f"{self._noun}s"
        tasks = f" ({plural(self._changed.tasks, 'task')})" if self._changed.tasks else ""
        names = ", ".join(map(short_address, self._changed.what))
        screen.write(f"{self._verb} {noun} {names}{tasks}\n")
