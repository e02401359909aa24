"""What is asked for of an agenda happens once, at its moment, in the order of asking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kestrel_experiments.flock_simulation.agenda import Agenda

#: Some before 0, some alike, some at the bounds of spans of time.
MOMENTS = st.sampled_from([-3.0, -0.25, 0.0, 0.2, 0.5, 0.7, 1.0, 1.25, 1.4, 2.0, 30.0])


class Diary:
    """Notes what happens; with each event others are asked for, so many seconds later."""

    def __init__(self, began: float) -> None:
        self.agenda = Agenda(began)
        self.asked: list[tuple[float, int]] = []
        self.happened: list[tuple[float, int]] = []

    def ask(self, moment: float, later: tuple[float, ...]) -> None:
        number = len(self.asked)
        self.asked.append((moment, number))
        self.agenda.at(moment, self._happens, number, later)

    def _happens(self, number: int, later: tuple[float, ...]) -> None:
        self.happened.append((self.agenda.now, number))
        for seconds in later:
            self.ask(self.agenda.now + seconds, ())


@given(
    began=st.sampled_from([-3.0, -3.2]),
    steps=st.lists(
        st.tuples(
            st.lists(st.tuples(MOMENTS, st.lists(st.sampled_from([0.0, 0.1, 0.6]), max_size=2))),
            MOMENTS,
        ),
        max_size=5,
    ),
)
def test_everything_happens_once_at_its_moment_and_in_the_order_of_asking(
    began: float, steps: list[tuple[list[tuple[float, list[float]]], float]]
) -> None:
    diary = Diary(began)
    for asked, until in steps:
        for moment, later in asked:
            diary.ask(max(moment, diary.agenda.now), tuple(later))
        diary.agenda.run(max(until, diary.agenda.now))
        now = diary.agenda.now
        assert diary.happened == sorted(each for each in diary.asked if each[0] < now)
    diary.agenda.run(100.0)
    assert diary.happened == sorted(diary.asked)
