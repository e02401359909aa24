"""Which stage of an attempt comes next, and when one is tried again."""

from __future__ import annotations

import pytest

from kestrelctl.core.model.job.stage import IN, OUT, RUN, SETUP, Stage, StageRun
from kestrelctl.worker.run.stage_state import LONGEST_PAUSE_SECONDS, StageState


def a_course(*names: str, tries: int = 1, over: tuple[StageRun, ...] = ()) -> StageState:
    return StageState([Stage(name=name, argv=("x",), tries=tries) for name in names], over)


@pytest.mark.parametrize(
    ("given", "begun"),
    [
        ((OUT, IN, SETUP), [SETUP, IN, RUN, OUT]),
        ((OUT,), [RUN, OUT]),
        ((IN,), [IN, RUN]),
    ],
)
def test_stages_come_in_their_order_around_the_command(
    given: tuple[str, ...], begun: list[str]
) -> None:
    course = a_course(*given)
    now, names = 0.0, []
    while course.upcoming:
        names.append(course.begin(now))
        now += 2.0
        course.end(now)
    assert names == begun
    assert course.over == [StageRun(name, 2.0) for name in begun]


def test_a_stage_is_tried_so_often_with_growing_pauses() -> None:
    course = a_course(IN, tries=8)
    course.begin(0.0)
    pauses = [course.try_again() for _ in range(8)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, None]
    course.end(100.0)
    assert course.over == [StageRun(IN, 100.0, 8)]


def test_each_stage_has_tries_of_its_own() -> None:
    course = a_course(SETUP, IN, tries=2)
    for _ in range(2):
        course.begin(0.0)
        assert course.try_again() == 1.0
        assert course.try_again() is None
        course.end(1.0)
    assert [run.tries for run in course.over] == [2, 2]


def test_what_is_over_is_not_begun_again() -> None:
    course = a_course(SETUP, OUT, over=(StageRun(SETUP, 3.0, 2), StageRun(RUN, 5.0)))
    assert course.begin(0.0) == OUT
    course.end(1.0)
    assert course.upcoming == ""
    assert course.over == [StageRun(SETUP, 3.0, 2), StageRun(RUN, 5.0), StageRun(OUT, 1.0)]


def test_a_stage_ends_once() -> None:
    course = a_course(IN)
    course.begin(0.0)
    course.end(1.0)
    course.end(2.0)
    assert course.over == [StageRun(IN, 1.0)]
