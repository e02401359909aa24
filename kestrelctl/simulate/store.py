"""What is durable: the store in memory, with commits that take time and can be cut short."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kestrelctl.core.model.records import Record
from kestrelctl.simulate.clock import Clock
from kestrelctl.store.memory import MemoryStore

Action = Callable[[], None]


class Store:
    """A group commit in front of tables: what comes while one commit runs goes into the next.

    Args:
        commit_seconds: bounds of a commit's duration.
        on_committed: called with the records of each commit.

    Attributes:
        tables: what is durable now.
        slowness: how many times longer commits take.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        commit_seconds: tuple[float, float],
        on_committed: Callable[[list[Record]], None],
    ) -> None:
        self.tables = MemoryStore()
        self.slowness = 1.0
        self._clock = clock
        self._random = random
        self._commit_seconds = commit_seconds
        self._on_committed = on_committed
        self._pending: list[Record] = []
        self._pending_actions: list[Action] = []
        self._committing: list[Record] | None = None
        self._committing_actions: list[Action] = []
        self._generation = 0

    @property
    def quiet(self) -> bool:
        """Nothing waits to become durable."""
        return self._committing is None

    def write(self, records: list[Record]) -> None:
        """Puts records into the next commit."""
        self._pending.extend(records)
        if self._committing is None:
            self._begin()

    def when_durable(self, action: Action) -> None:
        """Calls `action` once all that was written so far is durable."""
        if self._pending:
            self._pending_actions.append(action)
        elif self._committing is not None:
            self._committing_actions.append(action)
        else:
            action()

    def _begin(self) -> None:
        self._committing, self._pending = self._pending, []
        self._committing_actions, self._pending_actions = self._pending_actions, []
        seconds = self._random.uniform(*self._commit_seconds) * self.slowness
        self._clock.after(seconds, self._finish, self._generation)

    def _finish(self, generation: int) -> None:
        if generation != self._generation or self._committing is None:
            return
        records, actions = self._committing, self._committing_actions
        self._committing, self._committing_actions = None, []
        self._apply(records)
        if self._pending:
            self._begin()
        for action in actions:
            action()

    def flush(self) -> None:
        """Makes everything durable now."""
        while self._committing is not None:
            self._generation += 1
            self._finish(self._generation)

    def crash(self) -> None:
        """The process that writes dies: of the commit under way all or nothing stays."""
        self._generation += 1
        if self._committing is not None and self._random.random() < 0.5:
            self._apply(self._committing)
        self._committing = None
        self._pending.clear()
        self._pending_actions.clear()
        self._committing_actions.clear()

    def _apply(self, records: list[Record]) -> None:
        commit = self.tables.commit(records)
        try:
            commit.send(None)
        except StopIteration:
            self._on_committed(records)
        else:
            raise AssertionError("a commit in memory does not wait")
