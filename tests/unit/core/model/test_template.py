"""Whether the tasks of a job run the same, so that it need not be found for each."""

from __future__ import annotations

import pytest

from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.template import Template, filled, is_alike_for_all

ARRAY = Placeholders.ARRAY


@pytest.mark.parametrize(
    ("program", "alike"),
    [
        (Program(argv=("sleep", "1"), placeholders=ARRAY), True),
        (Program(argv=("find", "-exec", "wc", "{}"), placeholders=Placeholders.NONE), True),
        (Program(argv=("echo", "{}"), placeholders=ARRAY), False),
        (Program(argv=("true",), cleanup=("rm", "{n}"), placeholders=ARRAY), False),
        (
            Program(
                argv=("true",),
                stages=(Stage(name="setup", argv=("mkdir", "{i}")),),
                placeholders=ARRAY,
            ),
            False,
        ),
        (Program(argv=("true",), output_to="file:///data/", placeholders=ARRAY), False),
    ],
    ids=["plain", "no array", "command", "cleanup", "stage", "place"],
)
def test_tasks_run_the_program_of_their_job_if_nothing_tells_them_apart(
    program: Program, alike: bool
) -> None:
    template = Template(job_id=7, program=program, count=3)
    assert is_alike_for_all(template) is alike
    assert all(filled(template, index, None) == program for index in range(3)) is alike


def test_a_guest_is_filled_already() -> None:
    program = Program(argv=("echo", "{}"), placeholders=ARRAY)
    template = Template(job_id=7, program=program, filled=True)
    assert is_alike_for_all(template)
