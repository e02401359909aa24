"""The metrics of a manager's flock: neighbours, announcements, loans and guests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from prometheus_client.core import Metric

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.metrics.families import by, counter, counters, gauge, gauges, histogram

#: Pools with series of their own, the nearest first; the rest are `other`.
MOST_POOLS_SHOWN = 50
#: Seconds from asking for machines to the first task that one of them is handed.
HAND_OUT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0)

GIVEN, TAKEN = "given", "taken"


class LoanNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The loans to one pool, or from it, of all classes together.

    Attributes:
        direction: GIVEN or TAKEN.
        loans: how many classes.
        running: tasks.
        is_unreachable: whether messages to the pool come back.
    """

    pool: str
    direction: str
    loans: int
    cpus: float
    running: int
    is_unreachable: bool = False


class FilesHomeCounts(msgspec.Struct):
    """Files of guests that were to go home, since the manager started.

    Attributes:
        moved, moved_bytes: what is there.
        retries: tries that failed and were followed by another.
        failed: files that were given up.
    """

    moved: int = 0
    moved_bytes: int = 0
    retries: int = 0
    failed: int = 0


class FlockNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The flock of one manager at one moment; the defaults are those of a pool in none.

    Attributes:
        member: whether the pool is in a flock.
        lends: whether it lends anything to anybody now.
        known, routing_table, leaf_set: other pools that it knows, and how many of them are in each
            part of its overlay.
        states: the pools that it knows or has heard of, by state.
        round_trips: seconds to each pool of which that was measured.
        sent, received: announcements.
        dropped: messages that were dropped, by reason; also reasons that have not occurred.
        loans: for each pool and direction.
        guests: tasks of others, by what became of them.
        guest_cpu_seconds: what they have used.
        wanting: own tasks that wait and find no place at home.
        wishes: loans that are asked for now.
        starved_seconds: how long nobody has had anything for those tasks.
        hand_outs: the times from a wish to the first task that goes there.
        files: those of guests.
    """

    member: bool = False
    lends: bool = False
    known: int = 0
    routing_table: int = 0
    leaf_set: int = 0
    states: Mapping[str, int] = {}
    round_trips: Mapping[str, float] = {}
    sent: int = 0
    received: int = 0
    dropped: Mapping[str, int] = {}
    loans: Sequence[LoanNumbers] = ()
    guests: Mapping[str, int] = {}
    guest_cpu_seconds: float = 0.0
    wanting: int = 0
    wishes: int = 0
    starved_seconds: float = 0.0
    hand_outs: Histogram = msgspec.field(default_factory=lambda: Histogram(HAND_OUT_BOUNDS))
    files: FilesHomeCounts = msgspec.field(default_factory=FilesHomeCounts)


def flock_families(found: FlockNumbers) -> Iterator[Metric]:
    """The families of one manager's flock."""
    yield from _overlay(found)
    yield from _loans(found)
    yield from _guests(found)
    yield gauge(
        "kestrel_flock_wanting_tasks",
        "Own tasks that wait and find no place at home.",
        found.wanting,
    )
    yield gauge("kestrel_flock_wishes", "Loans that are asked for now.", found.wishes)
    yield gauge(
        "kestrel_flock_starved_seconds",
        "For how long tasks have wanted a place and nobody has had anything.",
        found.starved_seconds,
    )
    yield histogram(
        "kestrel_flock_hand_out_seconds",
        "From asking for a loan to the first task that goes there.",
        found.hand_outs,
    )


def _overlay(found: FlockNumbers) -> Iterator[Metric]:
    trips = found.round_trips
    yield gauge("kestrel_flock_member", "1 while the pool is in a flock.", found.member)
    yield gauge("kestrel_flock_lends", "1 while it lends anything to anybody.", found.lends)
    yield gauge("kestrel_flock_known_pools", "Other pools that it knows.", found.known)
    yield gauges(
        "kestrel_flock_overlay_pools",
        "Of them, those in each part of the overlay.",
        ("part",),
        by({"routing_table": found.routing_table, "leaf_set": found.leaf_set}),
    )
    yield gauges(
        "kestrel_flock_pools",
        "Pools that it knows or has heard of, by state.",
        ("state",),
        by(found.states),
    )
    yield gauges(
        "kestrel_flock_round_trip_seconds",
        f"A message to a pool and back; of the {MOST_POOLS_SHOWN} nearest.",
        ("pool",),
        by({pool: trips[pool] for pool in _nearest(found) if pool in trips}),
    )
    yield counters(
        "kestrel_flock_announcements",
        "Announcements of what is free.",
        ("direction",),
        by({"out": found.sent, "in": found.received}),
    )
    yield counters(
        "kestrel_flock_dropped",
        "Messages of other pools that were dropped.",
        ("reason",),
        by(found.dropped),
    )


def _nearest(found: FlockNumbers) -> list[str]:
    """The pools that have series of their own."""
    lenders = {loan.pool for loan in found.loans}
    trips = found.round_trips
    far = float("inf")
    ranked = sorted(lenders | trips.keys(), key=lambda pool: (trips.get(pool, far), pool))
    return ranked[:MOST_POOLS_SHOWN]


def _loans(found: FlockNumbers) -> Iterator[Metric]:
    loans, cut_off = {GIVEN: 0, TAKEN: 0}, {GIVEN: 0, TAKEN: 0}
    cpus: dict[tuple[str, str], float] = {}
    tasks: dict[tuple[str, str], float] = {}
    shown = set(_nearest(found))
    for loan in found.loans:
        loans[loan.direction] += loan.loans
        cut_off[loan.direction] += loan.loans if loan.is_unreachable else 0
        key = (loan.pool if loan.pool in shown else "other", loan.direction)
        cpus[key] = cpus.get(key, 0.0) + loan.cpus
        tasks[key] = tasks.get(key, 0.0) + loan.running
    labels = ("pool", "direction")
    yield gauges("kestrel_flock_loans", "Loans that are open.", ("direction",), by(loans))
    yield gauges(
        "kestrel_flock_cut_off_loans",
        "Of them, those of pools that cannot be reached.",
        ("direction",),
        by(cut_off),
    )
    yield gauges("kestrel_flock_loan_cpus", "Processors on loan.", labels, cpus.items())
    yield gauges("kestrel_flock_loan_tasks", "Tasks that run on them.", labels, tasks.items())


def _guests(found: FlockNumbers) -> Iterator[Metric]:
    yield counters(
        "kestrel_flock_guests",
        "Tasks of other pools here, by what became of them.",
        ("event",),
        by(found.guests),
    )
    yield counter(
        "kestrel_flock_guest_cpu_seconds",
        "Processor time of guests that have ended.",
        found.guest_cpu_seconds,
    )
    files = found.files
    yield counters(
        "kestrel_flock_files_home",
        "Files of guests that were to go to the share of their home.",
        ("outcome",),
        by({"moved": files.moved, "retried": files.retries, "failed": files.failed}),
    )
    yield counter("kestrel_flock_files_home_bytes", "What was moved there.", files.moved_bytes)
