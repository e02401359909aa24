"""The numbers that a pool's decisions turn on."""

from __future__ import annotations

import msgspec

#: Looking at running tasks more often than this would take too much of their machine.
SHORTEST_USAGE_SECONDS = 1.0


#: A job that has waited less than this does not starve.
SHORTEST_STARVING_SECONDS = 1.0
#: Usage that is forgotten sooner than this evens nothing out.
SHORTEST_HALF_LIFE_SECONDS = 60.0


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one pool; every default is what a new pool should have."""

    #: How far ahead a worker is supplied with short tasks.
    ahead_seconds: float = 0.2
    #: Tasks that take this long on average are never queued behind another.
    short_seconds: float = 1.0
    #: The most tasks that wait at a worker, per task that it runs side by side.
    ahead_per_slot: int = 384
    #: The same for `shared_seconds` after a user came who had nothing at any worker: he and those
    #: who come after him find short queues.
    shared_ahead_per_slot: int = 32
    shared_seconds: float = 10.0
    #: Tasks that wait at a worker that reported nothing for this long, and for longer than is its
    #: habit, are recalled when others idle.
    stuck_seconds: float = 0.5

    #: After this long without a task handed out, a job has a worker, or tokens, kept for it.
    starving_seconds: float = 60.0

    #: After this time, what a user has used counts half as much against him.
    usage_half_life_seconds: float = 86_400.0

    #: Signs of life the whole pool sends together, so that their cost does not grow with it.
    heartbeats_per_second: float = 100.0
    min_heartbeat_seconds: float = 3.0
    max_heartbeat_seconds: float = 60.0
    #: How late a worker's sign of life may be (its own interval is jittered by a tenth).
    late_seconds: float = 4.0

    #: How often workers report the usage of tasks that have run for at least as long; 0 for never.
    usage_seconds: float = 300.0

    #: Whether what tasks print goes into the file share, whatever their jobs say of it.
    keep_logs: bool = False

    #: How long the file share keeps what is put there, and how much of that the tasks of one user
    #: may have, unless something else is set for him; None for any number of bytes.
    files_kept_seconds: float = 7 * 86_400.0
    max_stored_bytes: int | None = None

    #: How large the unfinished jobs of an account may be together, as encoded, unless something
    #: else is set for it; None for any size. Forty accounts with so much, in words of eight
    #: letters, fill a manager of 4 GiB (docs/operations.md has the measurement).
    max_queued_bytes: int | None = 16 << 20

    #: How long after its start a manager waits for workers to say what they still run, before it
    #: starts that elsewhere. When the server was away, too, they need so long to come back.
    reconcile_seconds: float = 10.0
    #: How long attempts of jobs with `on_worker_lost = wait` wait for their worker.
    away_seconds: float = 600.0
    #: How long an offline worker stays in the list.
    forget_worker_seconds: float = 3600.0
    #: The most offline sessions of one account in the list; those that went first are dropped.
    most_offline_sessions: int = 1_000
    #: The most users without jobs and settings that are remembered for what they have used: those
    #: who used the most. A pool that borrows may name ever new guests.
    most_idle_users: int = 10_000

    #: First pause before a failed task is tried again; doubled each time.
    backoff_seconds: float = 1.0
    max_backoff_seconds: float = 60.0

    #: A copy of a service that ran for so long is started again after the first pause.
    service_settled_seconds: float = 60.0

    #: An attempt that has run for so long was not refused any asset of unknown capacity.
    accepted_seconds: float = 60.0

    #: How often a task may say that there is no more of such an asset, where nothing else takes
    #: any, before that is a failure of its own: with the pauses between, most of an hour.
    lone_refusals: int = 60

    #: So many failures in a row, each this fast, put a worker in quarantine if others fare better.
    quarantine_failures: int = 10
    quarantine_fast_seconds: float = 10.0
    #: So many losses of a worker within this time do so too.
    quarantine_losses: int = 5
    quarantine_losses_seconds: float = 60.0
    quarantine_seconds: float = 60.0
    max_quarantine_seconds: float = 3600.0
    #: After so long without another quarantine, the next is as long as the one before the last.
    quarantine_forgiven_seconds: float = 600.0
    #: One of so many workers that are online may be in quarantine.
    workers_per_quarantine: int = 4
    #: The pause of a worker that can start nothing, but is needed too much for a quarantine.
    unable_pause_seconds: float = 5.0
    #: How long a task that was lost at a worker goes to any other that could take it.
    shun_seconds: float = 5.0

    #: The most that the workers of one account may offer together; the rest of their ads does not
    #: count.
    max_account_cpus: float = 512.0

    def heartbeat_seconds(self, workers: int) -> float:
        """The interval of a worker's signs of life in a pool of that many workers."""
        return min(
            max(workers / self.heartbeats_per_second, self.min_heartbeat_seconds),
            self.max_heartbeat_seconds,
        )

    def lease_seconds(self, heartbeat_seconds: float) -> float:
        """The longest time that a worker with this interval may stay silent."""
        return heartbeat_seconds * 1.1 + self.late_seconds
