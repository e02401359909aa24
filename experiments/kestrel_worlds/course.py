"""The course of a simulated world: trouble, peace, rest, and the end of its managers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kestrel_worlds.audit import Audit
from kestrel_worlds.nodes import Nodes
from kestrel_worlds.settings import BadDay
from kestrel_worlds.simulation_clock import SimulationClock, StandsStill, fingerprint
from kestrel_worlds.vigil import Vigil
from kestrel_worlds.world_report import WorldReport
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.manager.commits import CLOSE_SECONDS

#: The time in which a manager that is told to stop does so.
STOPS_WITHIN_SECONDS = CLOSE_SECONDS + 1.0
#: How often the world is looked at from outside.
LOOK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class PoolOfWorld:
    """A pool, and its watchers."""

    nodes: Nodes
    audit: Audit
    vigil: Vigil


class Course:
    """All pools of a world, and whatever happens to them.

    Args:
        day: how much goes wrong, and how long that may last.
    """

    def __init__(self, clock: SimulationClock, day: BadDay, pools: Sequence[PoolOfWorld]) -> None:
        self.clock = clock
        self._day = day
        self._pools = pools

    @property
    def problems(self) -> list[str]:
        """The promises that were broken, in words."""
        return self._pools[0].audit.problems

    def run(self) -> float:
        """Lets everything happen, then has peace. Returns the seconds until all had ended."""
        try:
            return self._run()
        except StandsStill as error:
            self._expect(False, f"time stands still: {error}")
            return self.clock.now - self.clock.start

    def _run(self) -> float:
        clock, day = self.clock, self._day
        if day.faults:
            self.watch_until(clock.start + day.fault_seconds)
            clock.tell("world", "has peace")
            self.mend()
        self.until_rest(day.patience_seconds, self._unrest)
        seconds = clock.now - clock.start
        self.calm_down()
        self._stop()
        for pool in self._pools:
            pool.audit.verdict(pool.nodes.store)
        return seconds

    def look(self) -> None:
        """Looks at everything."""
        for pool in self._pools:
            pool.vigil.look()

    def mend(self) -> None:
        """Mends whatever was broken."""
        for pool in self._pools:
            pool.nodes.mend()

    def calm_down(self) -> None:
        """Waits for what goes on after the last task."""

    def watch_until(self, moment: float) -> None:
        """Lets time pass, and looks at everything."""
        while self.clock.now < moment:
            self.clock.run_until(min(moment, self.clock.now + LOOK_SECONDS))
            self.look()

    def until_rest(self, seconds: float, unrest: Callable[[], list[str]]) -> None:
        """Goes on until nothing is left; what is left after that time is a problem."""
        deadline = self.clock.now + seconds
        while self.clock.now < deadline and unrest():
            self.watch_until(self.clock.now + LOOK_SECONDS)
            for pool in self._pools:
                active = pool.nodes.store.jobs(states=["active"])
                for owner in pool.nodes.owners:
                    owner.give_up_hopeless(active)
                    owner.release_held(active)
        for what in unrest():
            self._expect(False, f"the world does not come to rest: {what}")

    def _unrest(self) -> list[str]:
        """Lists what keeps the pools from rest, as in `Nodes.unrest`."""
        return [
            f"{pool.nodes.server.domain}: {what}"
            for pool in self._pools
            for what in pool.nodes.unrest
        ]

    def _stop(self) -> None:
        """Tells all managers to stop, and checks that they do."""
        lives = [(pool.nodes.manager, pool.nodes.manager.life) for pool in self._pools]
        for manager, _ in lives:
            manager.terminate()
        deadline = self.clock.now + STOPS_WITHIN_SECONDS
        while self.clock.now < deadline and any(m.alive and m.life == n for m, n in lives):
            self.clock.run_until(self.clock.now + LOOK_SECONDS / 10)
        for manager, life in lives:
            stopped = not manager.alive or manager.life != life
            manager.audit.expect(stopped, "the manager does not stop when it is told to")

    def _expect(self, condition: bool, text: str) -> None:
        self._pools[0].audit.expect(condition, text)

    def close(self) -> None:
        """Ends all processes."""
        for pool in self._pools:
            for process in pool.nodes.processes:
                process.kill()

    def run_through(self, seed: int) -> WorldReport:
        """Runs to the end and closes; reports all but what is wasted and lent.

        Args:
            seed: the seed of the world, for the report.
        """
        clock = self.clock
        try:
            with log_told(clock, self._pools[0].audit):
                seconds = self.run()
        except Exception as error:
            lines = "\n".join(clock.lines()[-50:])
            error.add_note(f"in the {type(self).__name__} of seed {seed}, after:\n{lines}")
            raise
        finally:
            self.close()
        counts = Counts()
        own = [
            job
            for pool in self._pools
            for job in pool.nodes.store.jobs(limit=1_000_000)
            if job.spec.guest is None
        ]
        for job in own:
            counts.done += job.counts.done
            counts.failed += job.counts.failed
            counts.lost += job.counts.lost
            counts.cancelled += job.counts.cancelled
        story = clock.lines()
        return WorldReport(
            seed=seed,
            problems=self.problems,
            seconds=seconds,
            busy_seconds=max((job.ended_at or 0.0 for job in own), default=clock.start)
            - clock.start,
            jobs=len(own),
            counts=counts,
            executions=sum(len(pool.audit.executions) for pool in self._pools),
            wasted=0,
            actions=clock.actions,
            digest=fingerprint(story),
            story=story,
            decisions=[
                f"{pool.nodes.server.domain}: {line}"
                for pool in self._pools
                for line in pool.audit.decisions.lines()
            ],
        )


class _Teller(logging.Handler):
    def __init__(self, clock: SimulationClock, audit: Audit) -> None:
        super().__init__()
        self._clock = clock
        self._audit = audit

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._clock.tell("log", text)
        if record.exc_info:
            self._audit.expect(False, f"{text}: {record.exc_info[1]!r}")


@contextlib.contextmanager
def log_told(clock: SimulationClock, audit: Audit) -> Iterator[None]:
    """Makes what the shells log part of the story; an error that nobody expected is a problem."""
    logger = logging.getLogger("kestrelctl")
    before = logger.level, logger.propagate
    teller = _Teller(clock, audit)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(teller)
    try:
        yield
    finally:
        logger.removeHandler(teller)
        logger.setLevel(before[0])
        logger.propagate = before[1]
