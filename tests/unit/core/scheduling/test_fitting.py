"""Sets of shapes, held against asking each claim, and each class for its terms."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.scheduling.fitting import AskedFitting, Fitting
from kestrelctl.core.scheduling.match import Terms, match
from kestrelctl.core.scheduling.supply import ClassSupply

some_amounts = st.dictionaries(
    st.sampled_from(["cpus", "memory", "fpga"]), st.integers(1, 5), max_size=3
)
what_is_free = st.dictionaries(
    st.sampled_from(["cpus", "memory", "fpga", "gpus"]), st.integers(-2, 6), max_size=4
)


@given(asked=st.lists(some_amounts, max_size=12), free=what_is_free)
def test_what_fits_is_what_claims_say(asked: list[dict[str, int]], free: dict[str, int]) -> None:
    claims = [(1 << place, Claim(amounts)) for place, amounts in enumerate(asked)]
    fitting = sum(bit for bit, claim in claims if claim.fits(free))
    assert Fitting(claims).into(free) == fitting


REQUESTS = [{}, {"cpus": 2}, {"cpus": 5, "memory": 1}, {"cpus": 2, "fpga": 2}]
TAGS = [frozenset[str](), frozenset({"GPU"}), frozenset({"GPU", "SITE"})]
ALL_SUMS = (frozenset[str](), frozenset[str]())
NO_KEY = (frozenset[str](), (), ALL_SUMS)
FREE = [{}, {"cpus": 2, "memory": 3}, {"cpus": 9, "memory": -1, "fpga": 3}]


def supply_of(cls: WorkerClass, asked: AskedFitting) -> ClassSupply:
    return ClassSupply(cls, NO_KEY, asked, lambda shape, refusal: None)


def test_what_a_class_can_run_is_what_matching_says() -> None:
    shapes = [
        Shape(request, requires, requirements=requirements)
        for request, requires, requirements in product(REQUESTS, TAGS, ["", "Cpus > 0.002", "Site"])
    ]
    for place, shape in enumerate(shapes):
        shape.bit = 1 << place
    asked = AskedFitting()
    classes = [
        supply_of(
            WorkerClass(
                tags, capacity, kinds, ad_known=known, start=start, distance_seconds=seconds
            ),
            asked,
        )
        for tags, capacity, kinds, known, start, seconds in product(
            TAGS,
            [
                {"cpus": 1},
                {"cpus": 2},
                {"cpus": 6, "memory": 3, "fpga": 2},
                {"cpus": 6, "fpga": 1500},
            ],
            [ALL_SUMS, (frozenset[str](), frozenset({"fpga"}))],
            [True, False],
            ["", "RequestCpus < 0.003", "RequestCpus > 1"],
            [0.0, 0.5],
        )
    ]
    for known in (shapes[::2], shapes):
        wanted = sum(shape.bit for shape in known)
        for cls in classes:
            usable = cls.usable(shapes, wanted)
            terms = [(shape.bit, match(shape, cls.cls)) for shape in known]
            claims = [(bit, found.claim) for bit, found in terms if isinstance(found, Terms)]
            assert usable == sum(bit for bit, _ in claims)
            for free in FREE:
                fitting = sum(bit for bit, claim in claims if claim.fits(free))
                assert cls.fitting(free) == fitting


def test_shapes_that_come_later_are_told_by_size_too() -> None:
    small, large = Shape({"cpus": 2}, frozenset()), Shape({"cpus": 5}, frozenset())
    small.bit, large.bit = 1, 2
    cls = supply_of(WorkerClass(frozenset(), {"cpus": 6}), AskedFitting())
    assert cls.usable([small], 1) == 1
    assert cls.usable([small, large], 3) == 3
    assert cls.fitting({"cpus": 4}) == 1
    assert cls.fitting({"cpus": 5}) == 3
