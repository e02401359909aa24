"""What a user submits: one command template and an array of tasks."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

#: The longest command, and the longest requirements, in characters, in the head of a job.
HEAD_CHARACTERS = 1_000


class OnWorkerLost(enum.StrEnum):
    """What becomes of an attempt whose worker went offline."""

    REQUEUE = "requeue"
    WAIT = "wait"


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as submitted.

    Task number i of the array (0 <= i < count) has the id `first + i * step`. Limits count per
    task: a task is given up as failed at its `max_failures`th failed attempt, as lost at its
    `max_losses`th lost worker.

    Attributes:
        items: one line per task, for `{}` in the command.
        request: how much of each asset a task asks for, in natural units; always some `cpus`.
    """

    argv: tuple[str, ...]
    name: str = ""
    count: int = 1
    first: int = 0
    step: int = 1
    items: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    cleanup: tuple[str, ...] = ()
    request: dict[str, float] = msgspec.field(default_factory=lambda: {"cpus": 1.0})
    requires: tuple[str, ...] = ()
    priority: int = 100
    max_running: int | None = None
    max_failures: int = 1
    max_losses: int = 5
    time_limit_seconds: float | None = None
    on_worker_lost: OnWorkerLost = OnWorkerLost.REQUEUE

    def task_id(self, index: int) -> int:
        """The id a user sees for the task at `index`."""
        return self.first + index * self.step

    def index_of(self, task_id: int) -> int | None:
        """The index of the task with that id, or None if the array has no such task."""
        index, rest = divmod(task_id - self.first, self.step)
        return index if rest == 0 and 0 <= index < self.count else None

    def head(self) -> JobSpec:
        """What lists show of the job: some kilobytes, however long its parts are.

        It has no items, no environment and no cleanup; a long command, and long requirements, are
        cut. Nothing can be run from it.
        """
        return msgspec.structs.replace(
            self,
            argv=tuple(cut_words(self.argv, HEAD_CHARACTERS)),
            items=None,
            env={},
            cleanup=(),
            requires=tuple(cut_words(self.requires, HEAD_CHARACTERS)),
        )

    def shows_all(self) -> bool:
        """Whether the command and the requirements of a head are those of the job, uncut."""
        return all(
            sum(len(word) + 1 for word in words) <= HEAD_CHARACTERS
            for words in (self.argv, self.requires)
        )


def cut_words(words: Iterable[str], characters: int) -> list[str]:
    """The first words, with a space after each, up to so many characters; `…` where it is cut."""
    kept: list[str] = []
    for word in words:
        if len(word) >= characters:
            kept.append(word[:characters] + "…")
            break
        kept.append(word)
        characters -= len(word) + 1
    return kept
