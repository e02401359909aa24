"""Shows what a request changed, for the commands that change something."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kestrelctl.cli.show.command_output import CommandOutput
from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.wording import plural
from kestrelctl.grammar.quantities import short_address
from kestrelctl.protocol.request import Changed

#: The most that are named; more are only counted.
_MOST_NAMED = 10


class Changes(CommandOutput):
    """Jobs or workers that were changed, and how many tasks that concerned."""

    def __init__(
        self,
        changed: Changed,
        verb: str,
        noun: str,
        *,
        nothing: str = "",
        kept: str = "not ended yet",
    ) -> None:
        """Args:
        verb: the word for the change, e.g. `cancelled`.
        noun: the word for one of them, e.g. `job`.
        nothing: the remark if nothing was changed.
        kept: the reason why some were left as they are.
        """
        self._changed = changed
        self._verb = verb
        self._noun = noun
        self._kept = kept
        self._nothing = nothing or f"no {noun} {verb}"

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        data = {
            "changed": self._changed.what,
            "tasks": self._changed.tasks,
            "kept": self._changed.kept,
            "missing": self._changed.missing,
        }
        yield ", ".join(self._changed.what), data

    async def name(self, screen: Screen) -> None:
        for each in self._changed.what:
            screen.write(f"{each}\n")

    async def tabulate(self, screen: Screen) -> None:
        what = self._changed.what
        tasks = f" ({plural(self._changed.tasks, 'task')})" if self._changed.tasks else ""
        if len(what) > _MOST_NAMED:
            screen.write(f"{self._verb} {plural(len(what), self._noun)}{tasks}\n")
        elif what:
            noun = self._noun if len(what) == 1 else f"{self._noun}s"
            names = ", ".join(map(short_address, what))
            screen.write(f"{self._verb} {noun} {names}{tasks}\n")
        else:
            screen.say(self._nothing)
        if self._changed.kept:
            kept = plural(self._changed.kept, self._noun)
            screen.say(f"{kept} kept: {self._kept}")
        if self._changed.missing:
            ids = plural(self._changed.missing, "id")
            are = "is" if self._changed.missing == 1 else "are"
            screen.say(f"{ids} in these ranges {are} of no {self._noun}")
