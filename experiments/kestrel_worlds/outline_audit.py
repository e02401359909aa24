"""Compares the pool's estimates of assets of unknown capacity with how much there really is."""

from __future__ import annotations

from collections.abc import Iterator

from kestrelctl.core.handlers.leases import LEASE_ROUND_SECONDS
from kestrelctl.core.members.availability import closed
from kestrelctl.core.members.outline import Outline
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.worker.assets import MILLI, Amounts
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.state import State

#: The most that an estimate exceeds what there is, in a calm world: one unit that is about to be
#: refused, and one for a task that was let in while the end of another was on its way.
MOST_ABOVE = 2 * MILLI
#: How long a worker that should be tried may be left alone: it is looked at with the leases.
LATE_SECONDS = 2 * LEASE_ROUND_SECONDS


class Truth:
    """The real amount of one asset of one worker, and the results of tasks that took of it."""

    def __init__(self, there: int) -> None:
        self.there = there
        self.last_refused = 0  #: the highest number of an attempt that was refused
        self.refusals = 0
        self.successes = 0

    @property
    def most_successes(self) -> int:
        """The most successes until the estimate reaches what there is, if tasks waited all along.

        The estimate takes a step of one unit with the first success of an attempt that was sent
        after the step before. At k units that success comes after at most k others, which were sent
        before it; and of those that are reported together only one counts.
        """
        units = self.there // MILLI
        return sum(k + 1 for k in range(1, units)) + units


class Guess:
    """An estimate at the last look."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.estimate = outline.estimate
        self.fell_at = 0  #: attempts with smaller numbers were sent before it last fell
        self.reached = False  #: whether it has been as much as there is


class OutlineAudit:
    """Looks at each estimate after each event.

    - It falls only when an attempt was refused that was sent after it last fell.
    - It is not below what the least waiting task takes for longer than a worker rests.
    - In a calm world it is always one unit or more. It reaches what there is before
      `Truth.most_successes` tasks have ended well, is never above that by more than `MOST_ABOVE`,
      and from then on never below half of it. No more are refused than end well: an estimate has
      to rise before another is.

    Args:
        calm: nothing goes wrong, every worker has some, and tasks take one unit each, for much
            longer than messages travel.
    """

    def __init__(self, *, calm: bool) -> None:
        self._calm = calm
        self._truths: dict[tuple[str, str], Truth] = {}
        self._guesses: dict[tuple[str, str], Guess] = {}
        #: (worker, asset) -> the moment since which it should be tried
        self._waiting: dict[tuple[str, str], float] = {}

    def machine(self, worker: str, there: Amounts) -> None:
        """Notes how much of each asset of unknown capacity a worker's machine really has."""
        for asset, amount in there.items():
            self._truths[worker, asset] = Truth(amount)

    def refused(self, worker: str, asset: str, number: int) -> None:
        """Notes that there was no more of an asset for an attempt."""
        truth = self._truths[worker, asset]
        truth.last_refused = max(truth.last_refused, number)
        truth.refusals += 1

    def succeeded(self, worker: str, request: Amounts) -> None:
        """Notes that a task with this request has ended well."""
        for asset in request:
            if (worker, asset) in self._truths:
                self._truths[worker, asset].successes += 1

    def look(self, state: State) -> Iterator[str]:
        """Tells what is wrong now, in words."""
        for key, truth in self._truths.items():
            jid, asset = key
            worker = state.workers.get(jid)
            outline = worker.outlines.get(asset) if worker is not None else None
            if outline is None:
                continue
            guess = self._guesses.get(key)
            if guess is None or guess.outline is not outline:
                guess = self._guesses[key] = Guess(outline)
            estimate = outline.estimate
            if estimate < guess.estimate:
                if truth.last_refused < guess.fell_at:
                    yield f"the estimate of {asset} of {jid} falls, and nothing was refused"
                guess.fell_at = state.next_number
            guess.estimate = estimate
            guess.reached = guess.reached or estimate >= truth.there
            if self._calm:
                wrong = _what_is_wrong(guess, truth)
                if wrong:
                    yield f"the estimate of {asset} of {jid}, {estimate}, {wrong} {truth.there}"

    def look_at_rests(self, state: State, now: float) -> Iterator[str]:
        """Tells which workers are not tried though tasks wait that ask for more than is thought."""
        waiting: dict[tuple[str, str], float] = {}
        for key in self._truths:
            jid, asset = key
            worker = state.workers.get(jid)
            if (
                worker is None
                or asset not in worker.outlines
                or not _should_try(state, worker, asset, now)
            ):
                continue
            since = waiting[key] = self._waiting.get(key, now)
            if since + LATE_SECONDS < now:
                yield f"{jid} has rested, and nobody tries whether it has {asset}"
        self._waiting = waiting


def _what_is_wrong(guess: Guess, truth: Truth) -> str:
    if guess.estimate < MILLI:
        return "is less than one unit of"
    if guess.estimate > truth.there + MOST_ABOVE:
        return "is far above"
    if guess.reached and guess.estimate < truth.there // 2 // MILLI * MILLI:
        return "is less than half of"
    if truth.refusals > truth.successes + 1:
        return f"lets in too many: {truth.refusals} were refused of"
    if not guess.reached and truth.successes > truth.most_successes:
        return f"has not reached in {truth.successes} successes"
    return ""


def _amounts_waiting(state: State, worker: Worker, asset: str) -> Iterator[int]:
    """Yields what waiting tasks that could run at a worker would take of an asset."""
    supply = state.supply.of(worker)
    for shape in state.demand.waiting_shapes():
        terms = supply.terms(shape)
        if isinstance(terms, Terms) and terms.claim.amounts.get(asset):
            yield terms.claim.amounts[asset]


def _should_try(state: State, worker: Worker, asset: str, now: float) -> bool:
    """Whether nothing of an asset is taken at a worker, and all that waits for it asks for more."""
    outline = worker.outlines[asset]
    if closed(worker, now) is not None or worker.kept_for is not None:
        return False
    if outline.rests_until > now or worker.free[asset] < outline.estimate:
        return False
    return outline.estimate < min(_amounts_waiting(state, worker, asset), default=0)
