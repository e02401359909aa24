"""All gates of the table of features: what an option that holds jobs back needs nowhere else."""

from __future__ import annotations

import pytest

from kestrelctl.core.census import WAITING_REASONS
from kestrelctl.core.features.table import GATES
from kestrelctl.core.jobs.job import Gate
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.grammar.job_options import OPTIONS
from kestrelctl.grammar.why_waiting import reason_text

each_gate = pytest.mark.parametrize("gate", GATES, ids=lambda gate: str(gate.reason))


@each_gate
def test_people_are_told_of_each_gate_in_a_sentence(gate: Gate) -> None:
    told = reason_text(Refusal(gate.reason, "at most 5", "7"))
    assert not told.startswith(gate.reason)
    assert "7" in told, "what is found belongs into it"
    assert "{" not in told


@each_gate
def test_what_waits_is_counted_for_each_gate(gate: Gate) -> None:
    assert gate.reason in WAITING_REASONS


def test_a_gate_is_called_as_the_option_that_has_its_sentence() -> None:
    sentences = {option.name for option in OPTIONS if option.holds_back}
    assert sentences == {gate.reason for gate in GATES} - set(Reason)
