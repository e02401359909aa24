"""The traces of the flock experiments are drawn as their source says."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from kestrel_experiments.flock_simulation.trace import (
    LONGEST,
    SHORTEST,
    sequence,
    trace,
    trace_arrays,
)


def test_a_sequence_has_a_hundred_tasks_with_gaps_and_lengths_between_1_and_17() -> None:
    tasks = sequence(Random(1))
    gaps = [later.at - earlier.at for earlier, later in pairwise(tasks)]
    lengths = [task.seconds for task in tasks]
    assert len(tasks) == 100
    for values in ([tasks[0].at, *gaps], lengths):
        assert SHORTEST <= min(values) < 2
        assert 16 < max(values) <= LONGEST


def test_a_sequence_is_on_average_as_much_work_as_one_machine_does_meanwhile() -> None:
    tasks = sequence(Random(2), 20_000)
    assert sum(task.seconds for task in tasks) / tasks[-1].at == pytest.approx(1, abs=0.02)


def test_a_trace_is_its_sequences_merged_in_the_order_of_their_moments() -> None:
    tasks = trace(Random(3), 5)
    alone = Random(3)
    assert sorted(tasks) == tasks
    assert set(tasks) == {task for _ in range(5) for task in sequence(alone)}


def test_one_seed_draws_one_trace() -> None:
    assert trace(Random(4), 3) == trace(Random(4), 3)
    assert trace(Random(4), 3) != trace(Random(5), 3)


def test_the_arrays_of_a_large_flock_hold_the_same_trace_in_seconds() -> None:
    tasks = trace(Random(6), 4)
    moments, lengths = trace_arrays(Random(6), 4, 60.0)
    assert list(moments) == pytest.approx([60 * task.at for task in tasks])
    assert list(lengths) == pytest.approx([60 * task.seconds for task in tasks])
