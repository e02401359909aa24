"""What the pool keeps of a job in memory: all that it decides by, and nothing that is long."""

from __future__ import annotations

import pytest
from jobkit import changed, job_spec

from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.light_spec import LONG_PROGRAM_BYTES, is_long, lightened
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.shape import shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import Stage

WORDS = ("word",) * 1_000
LONG = job_spec(
    argv=("run", *WORDS),
    env={"A": "b"},
    cleanup=("rm", *WORDS),
    stages=(Stage(name="in", argv=("get", *WORDS)),),
    outputs=("*.csv",),
    items=("a", "b"),
    count=2,
)


def test_items_and_the_words_of_a_long_program_are_left_out() -> None:
    light = lightened(LONG)
    assert light.items is None
    program = light.program
    words = [word for _, words in program.commands() for word in words]
    assert sum(map(len, words)) < 4_000
    assert program.env == {}
    assert [stage.name for stage in program.stages] == ["in"]
    assert (
        changed(
            light,
            items=LONG.items,
            argv=LONG.program.argv,
            env=LONG.program.env,
            cleanup=LONG.program.cleanup,
            stages=LONG.program.stages,
        )
        == LONG
    )


def test_what_is_light_stays_as_it_is() -> None:
    spec = job_spec(argv=("run", "{}"), count=9)
    assert lightened(spec) is spec
    light = lightened(LONG)
    assert lightened(light) == light


@pytest.mark.parametrize(
    ("fields", "long"),
    [
        ({"argv": ("x" * (LONG_PROGRAM_BYTES - 64),)}, False),
        ({"argv": ("x" * (LONG_PROGRAM_BYTES - 63),)}, True),
        ({"argv": ("x",) * (LONG_PROGRAM_BYTES // 65)}, False),
        ({"argv": ("x",) * (LONG_PROGRAM_BYTES // 65 + 1)}, True),
        ({"env": {f"{n:03}": "" for n in range(200)}}, True),
        ({"cleanup": WORDS}, True),
    ],
)
def test_a_program_is_long_by_the_memory_of_its_texts(
    fields: dict[str, object], long: bool
) -> None:
    assert is_long(job_spec(**fields)) is long


@pytest.mark.parametrize("braces", ["{{n}}", "{n}"])
def test_who_can_run_it_is_decided_alike(braces: str) -> None:
    """Old workers would fill braces that are to stay: the words with these are looked at again."""
    for placeholders in Placeholders:
        spec = job_spec(argv=("run", *WORDS, braces), placeholders=placeholders)
        assert shape_key(lightened(spec)) == shape_key(spec)


def test_a_guest_keeps_its_program() -> None:
    guest = GuestOf(pool="home.test", job_id=1, user="ada", loan="l", memo=b"")
    spec = changed(LONG, guest=guest, items=None)
    assert lightened(spec) is spec


@pytest.mark.parametrize("spec", [LONG, job_spec(argv=("x" * 50_000,)), job_spec()])
def test_lists_show_the_same_of_it(spec: JobSpec) -> None:
    assert lightened(spec).head() == spec.head()
    assert lightened(spec).head().shows_all() is spec.head().shows_all()
