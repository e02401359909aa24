"""Counts how a pool stands in its flock, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.flock.overlay import overlay
from kestrelctl.flock.rules import willing
from kestrelctl.flock.service import flock_service
from kestrelctl.flock.service.flock_service import FlockService
from kestrelctl.flock.service.loan_addresses import pool_and_loan
from kestrelctl.flock.service.neighbour_states import state_of
from kestrelctl.manager.service import Service
from kestrelctl.metrics.flock_families import GIVEN, TAKEN, FlockNumbers, LoanNumbers
from kestrelctl.protocol.views import NEIGHBOUR_STATES

#: Every reason for which a message may be dropped: a series that begins at one hides its first.
DROP_REASONS = (
    *(willing.OWN, willing.OLD, willing.HEARSAY, willing.ABSURD, willing.FLOOD),
    *(flock_service.UNREADABLE, flock_service.UNASKED, flock_service.STRANGER),
    *(overlay.LATE, overlay.TOO_MANY, overlay.UNANSWERED),
)


def flock_numbers(service: Service, flock: FlockService) -> FlockNumbers:
    """The numbers of this moment."""
    moment = service.now()
    known = flock.overlay.known()
    heard = {each.said.pool: each.said for each in flock.willing.holding(moment)}
    states = Counter(
        state_of(pool, heard.get(pool), flock.unreachable)
        for pool in {*known, *heard, *flock.unreachable}
    )
    trips = {pool: flock.overlay.proximity_seconds(pool) for pool in {*known, *heard}}
    counts = flock.keeper.counts
    return FlockNumbers(
        member=flock.member,
        lends=flock.willingness()[0],
        known=len(known),
        routing_table=len(flock.overlay.table()),
        leaf_set=len(flock.overlay.leaves()),
        states={state: states[state] for state in NEIGHBOUR_STATES},
        round_trips={pool: trip for pool, trip in trips.items() if trip is not None},
        sent=flock.counts["sent"],
        received=flock.counts["received"],
        dropped=dict.fromkeys(DROP_REASONS, 0) | flock.dropped(),
        loans=[*_given(flock), *_taken(service, flock)],
        guests={
            "begun": counts.begun,
            "done": counts.done,
            "failed": counts.failed,
            "given-back": counts.given_back,
            "refused": counts.refused,
        },
        guest_cpu_seconds=counts.cpu_seconds,
        wanting=flock.desk.wanting if flock.member else 0,
        wishes=flock.desk.borrower.open_wishes(moment),
        starved_seconds=flock.desk.borrower.starved_seconds(moment) if flock.member else 0.0,
        hand_outs=flock.desk.hand_outs,
        files=flock.keeper.carrier.counts,
    )


def _given(flock: FlockService) -> Iterator[LoanNumbers]:
    for (borrower, loan_id), state in flock.keeper.lender.loans.items():
        loan = flock.keeper.loans.get((borrower, loan_id))
        if loan is not None:
            yield LoanNumbers(
                pool=borrower,
                direction=GIVEN,
                loans=1,
                cpus=state.amounts.get("cpus", 0.0),
                running=loan.running,
                is_unreachable=borrower in flock.unreachable,
            )


def _taken(service: Service, flock: FlockService) -> Iterator[LoanNumbers]:
    for jid, worker in service.pool.workers.items():
        if is_neighbour(jid) and (worker.online or worker.held):
            lender, _ = pool_and_loan(jid)
            yield LoanNumbers(
                pool=lender,
                direction=TAKEN,
                loans=1,
                cpus=worker.ad.assets.get("cpus", 0.0),
                running=worker.running,
                is_unreachable=not worker.online or lender in flock.unreachable,
            )
