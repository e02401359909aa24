"""What may be for a moment, but must not last: looked at twice a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kestrelctl.core.pacing.backoff import LONGEST_SECONDS

if TYPE_CHECKING:
    from kestrelctl.core.pool import Pool
    from kestrelctl.simulate.process import Process
    from kestrelctl.simulate.world import World

#: How long after a disturbance everybody must know better, and act.
GRACE_SECONDS = 4.0


class Vigil:
    """Watches one world from outside."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._disturbed_at: dict[str, float] = {}  #: process -> when it was last out of order
        self._in_order_at: dict[str, float] = {}  #: process -> when it was last in order
        self._differing: dict[tuple[str, int], float] = {}  #: (worker, attempt) -> since when
        self._complained: set[tuple[str, object]] = set()

    def look(self) -> None:
        """Notes how things are, and whatever has lasted too long."""
        world = self._world
        now = world.clock.now
        for process in (world.manager, *world.workers):
            at = self._in_order_at if _in_order(process) else self._disturbed_at
            at[process.name] = now
        if not self._steady(world.manager, GRACE_SECONDS):
            return
        pool = world.manager.pool
        assert pool is not None
        self._look_at_members(pool)
        self._look_at_holds(pool)
        self._look_at_executions()

    def _steady(self, process: Process, seconds: float) -> bool:
        """Whether a process has been in order for so long."""
        since = self._disturbed_at.get(process.name, self._world.clock.start)
        return max(since, process.disturbed_at) + seconds < self._world.clock.now

    def _look_at_members(self, pool: Pool) -> None:
        """A worker that is out of order is found out; what waits for it does not wait for ever."""
        now = self._world.clock.now
        for process in self._world.workers:
            worker = pool.state.workers.get(process.name)
            if worker is None:
                continue
            lease = self._world.settings.config.lease_seconds(worker.heartbeat_seconds)
            silent = self._in_order_at.get(process.name, self._world.clock.start)
            late = now - silent > lease + GRACE_SECONDS and self._steady(
                self._world.manager, lease + LONGEST_SECONDS + GRACE_SECONDS
            )
            self._expect(not (late and worker.online), "is believed to be there", process.name)
            given_up = not worker.online and worker.away_until + GRACE_SECONDS < now
            self._expect(not (given_up and worker.held), "is waited for in vain", process.name)

    def _look_at_holds(self, pool: Pool) -> None:
        """What the pool thinks that a worker has, it has; and the other way round."""
        now = self._world.clock.now
        differing: dict[tuple[str, int], float] = {}
        for process in self._world.workers:
            worker = pool.state.workers.get(process.name)
            if worker is None or not self._steady(process, GRACE_SECONDS):
                continue
            begun, ended = process.holds()
            held = worker.held.keys()
            for number in sorted((held - begun - ended) | (begun - held)):
                since = self._differing.get((process.name, number), now)
                differing[process.name, number] = since
                self._expect(since + GRACE_SECONDS > now, "is held by one side only", number)
        self._differing = differing

    def _look_at_executions(self) -> None:
        """Nothing runs for a task that is over, or twice."""
        now = self._world.clock.now
        audit = self._world.audit
        steady = {
            worker.name for worker in self._world.workers if self._steady(worker, GRACE_SECONDS)
        }
        seen: dict[tuple[int, int], int] = {}
        for execution in audit.running():
            if execution.worker not in steady or execution.began_at + GRACE_SECONDS > now:
                continue
            task = (execution.job_id, execution.index)
            over_at = min(
                audit.over_since.get(task, now), audit.stopped_since.get(execution.job_id, now)
            )
            self._expect(
                over_at + GRACE_SECONDS > now, "runs though its task is over", execution.number
            )
            self._expect(task not in seen, "runs a task that runs already", execution.number)
            seen[task] = execution.number

    def _expect(self, condition: bool, what: str, who: object) -> None:
        if not condition and (what, who) not in self._complained:
            self._complained.add((what, who))
            self._world.audit.expect(False, f"{who} {what}")


def _in_order(process: Process) -> bool:
    return (
        process.alive
        and not process.stopped
        and not process.cut_off
        and process.link is not None
        and process.server.up
    )
