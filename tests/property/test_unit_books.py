"""Units and books of a worker, under any order of work, ends and resizes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.assets import MILLI, Amounts, amounts, with_units
from kestrelctl.core.model.worker.unit_claim import choose

IDS = ("a", "b", "c", "d")

claims = st.fixed_dictionaries(
    {"cpus": st.sampled_from([500, 1000])},
    optional={"gpus": st.sampled_from([250, 400, 500, 1000, 1500, 2000, 3000])},
)
offers = st.tuples(st.sampled_from([1.0, 2.0, 8.0]), st.sets(st.sampled_from(IDS)))
steps = st.one_of(
    st.tuples(st.just("run"), claims),
    st.tuples(st.just("start"), st.none()),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("resize"), offers),
)


class Books:
    """An agent, and what is charged there by our own count."""

    def __init__(self) -> None:
        self.offer: tuple[float, tuple[str, ...]] = (8.0, IDS)
        self.agent = Agent({"cpus": 8.0, "gpus": 4.0}, units={"gpus": IDS})
        self.agent.holds()
        self.agent.on_welcome(self.agent.greeting, [], 0.0, 0.0)
        self.running: dict[int, Amounts] = {}
        self.queued = 0
        self.number = 100

    @property
    def capacity(self) -> Amounts:
        cpus, ids = self.offer
        return with_units(amounts({"cpus": cpus, "gpus": float(len(ids))}), {"gpus": ids})

    def run(self, claim: Amounts) -> None:
        self.number += 1
        template = Template(job_id=1, program=Program(argv=("true",)))
        refused = self.agent.on_run(
            [(self.number, 1, 0, 1, 0, 9)], [claim], [template], [], [], now=0.0
        )
        hopeless = any(n > self.capacity.get(name, 0) for name, n in claim.items())
        assert refused == ([self.number] if hopeless else [])

    def start(self) -> None:
        before = dict(self.agent.free)
        attempt = self.agent.start_next(0.0)
        if attempt is None:
            return
        charged = attempt.claim.amounts
        self.running[attempt.number] = charged
        for name, n in charged.items():
            assert before[name] >= n, "it starts what does not fit"
        units = {name: n for name, n in charged.items() if "/" in name}
        whole, part = divmod(charged.get("gpus", 0), MILLI)
        assert sorted(units.values()) == sorted([MILLI] * whole + [part] * bool(part))
        assert attempt.claim.units.get("gpus", ()) == tuple(name[5:] for name in units)

    def end(self, which: int) -> None:
        if self.running:
            number = sorted(self.running)[which % len(self.running)]
            del self.running[number]
            self.agent.on_completion(Result(number, 1, 0, Outcome.DONE, 0.0, 0.0), 0.0)

    def resize(self, offer: tuple[float, set[str]]) -> None:
        self.offer = (offer[0], tuple(unit for unit in IDS if unit in offer[1]))
        going = set(self.agent.running)
        self.agent.resize(
            {"cpus": offer[0], "gpus": float(len(self.offer[1]))}, {"gpus": self.offer[1]}
        )
        assert set(self.agent.running) == going == set(self.running), "a resize ended something"
        for attempt in self.agent.queue:
            assert attempt.claim.fits(self.capacity), "what waits could never start"

    def check(self) -> None:
        taken: dict[str, int] = {}
        for charged in self.running.values():
            for name, n in charged.items():
                taken[name] = taken.get(name, 0) + n
        for name in {*self.capacity, *taken, *self.agent.free}:
            free = self.agent.free.get(name, 0)
            assert free + taken.get(name, 0) == self.capacity.get(name, 0), name
            assert "/" not in name or taken.get(name, 0) <= MILLI, "two have one unit"


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=60))
def test_free_and_charged_are_the_capacity_and_no_unit_is_given_twice(
    does: list[tuple[str, object]],
) -> None:
    books = Books()
    for what, argument in does:
        if what == "start":
            books.start()
        else:
            getattr(books, what)(argument)
        books.check()
    while books.running:
        books.end(0)
        books.check()
    assert {name: n for name, n in books.agent.free.items() if n} == books.capacity
    books.resize((8.0, set(IDS)))
    assert books.agent.free == books.capacity, "a release restores exactly"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(-MILLI, MILLI), max_size=8), st.integers(1, 4 * MILLI))
def test_units_are_chosen_wherever_they_are_there(lefts: list[int], amount: int) -> None:
    units = [(str(place), left) for place, left in enumerate(lefts)]
    chosen = choose(units, amount)
    whole, part = divmod(amount, MILLI)
    idle = lefts.count(MILLI)
    in_pieces = any(part <= left < MILLI for left in lefts)
    possible = idle >= whole + (bool(part) and not in_pieces)
    assert (chosen is not None) == possible
    if chosen is not None:
        assert sum(chosen.values()) == amount
        assert all(n <= dict(units)[unit] for unit, n in chosen.items())
        assert sum(0 < n < MILLI for n in chosen.values()) == bool(part)
