"""The set of shapes that fit, held against asking each claim."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.model.claim import Claim
from kestrelctl.core.scheduling.fitting import Fitting

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
