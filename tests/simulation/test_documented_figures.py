"""Figures in documents that a seed decides are those that the commands beside them give now.

Tables of a thousand pools take minutes: `tests/bench/documented.py` makes them, and no test.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from documentedkit import (
    DOCS,
    ENVIRONMENT_TABLES,
    FLOCK_TABLES,
    GROWTH,
    HUNDRED,
    IDEAL_COMMAND,
    MODELS,
    Cells,
    EnvironmentTable,
    FlockTable,
    ad_bytes,
    ideal_table,
    markdown,
    predicted_signs_of_life,
    sign_of_life_bytes,
    table_after,
    words_of,
)
from seeds import due

from kestrelctl.cli.main import kestrelctl
from kestrelctl.core.counting.traffic import condor_traffic
from kestrelctl.protocol.workers import VERSION

HOSTS = ENVIRONMENT_TABLES[0]


def prints(words: Sequence[str]) -> bytes:
    """What a command prints as JSON; in Python, which gives the same figures as C."""
    line = [word for word in words if word != "--compiled"]
    result = CliRunner().invoke(kestrelctl, [*line, "-o", "json"], prog_name="kestrelctl")
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def in_turn(places: int) -> set[int]:
    """Which of so many this commit tries."""
    return set(due(places, places))


class Case(NamedTuple):
    """Figures that a command makes, and that stand on a page."""

    name: str
    made: Callable[[], Cells]
    stands: Callable[[], Cells]


def of_flock(table: FlockTable, command: str) -> Case:
    return Case(command, lambda: table.made(command, prints), lambda: table.stands(command))


#: In some seconds.
SOON = [of_flock(GROWTH, command) for command in GROWTH.commands[:2]]
#: In up to a minute each; one of them in turn.
LATER = [
    *(of_flock(GROWTH, command) for command in GROWTH.commands[2:]),
    of_flock(HUNDRED, HUNDRED.commands[0]),
    of_flock(MODELS, MODELS.commands[0]),
    Case(HOSTS.command, lambda: HOSTS.whole(prints), HOSTS.stands),
]


@pytest.mark.parametrize(
    "case",
    [*SOON, *(LATER[place] for place in sorted(in_turn(len(LATER))))],
    ids=lambda case: case.name,
)
def test_a_simulation_gives_the_figures_of_its_page(case: Case) -> None:
    assert case.made() == case.stands()


@pytest.mark.parametrize(
    "table", [*FLOCK_TABLES, *ENVIRONMENT_TABLES], ids=lambda table: table.name
)
def test_the_commands_of_a_table_stand_above_it(table: FlockTable | EnvironmentTable) -> None:
    commands = table.commands if isinstance(table, FlockTable) else (table.command,)
    assert commands
    for command in commands:
        assert table_after(table.page, command) == table_after(table.page, commands[-1])
        assert words_of(command)[0] == "bench"


def test_what_pools_alone_reach_at_best_is_computed_again() -> None:
    assert ideal_table() == table_after("flock-experiment.md", IDEAL_COMMAND)


@pytest.mark.parametrize("place", sorted(in_turn(6)))
def test_what_taking_machines_back_costs_is_computed_again(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "bench"), *sys.path])
    import reclaim

    _, *lines = table_after("flock-experiment.md", "$ .venv/bin/python tests/bench/reclaim.py")
    assert reclaim.cells(reclaim.TIMES[place], reclaim.SEEDS) == lines[place]


def test_what_is_said_of_advertisements_is_what_is_sent(tmp_path: Path) -> None:
    text = " ".join((DOCS / "performance.md").read_text().split())
    assert f"The ad itself is {ad_bytes(tmp_path)} bytes" in text
    assert f"a sign of life {sign_of_life_bytes()} bytes" in text
    _, *lines = table_after("performance.md", "$ .venv/bin/python tests/bench/adsize.py")
    for workers, _, predicted, *_ in lines:
        assert predicted == predicted_signs_of_life(int(workers.replace(",", "")))
    condor = condor_traffic(10_000, 4, 40_000)
    assert f"{ceil(condor.ads_per_second)} ads a second" in text
    schedd, shadow = condor.schedd_updates_per_second, condor.shadow_updates_per_second
    assert f"{ceil(schedd)} and {ceil(shadow)} updates a second" in text


def test_the_latest_change_of_the_protocol_is_the_one_that_is_named() -> None:
    text = (DOCS / "operations.md").read_text()
    [(anchor, before, now)] = re.findall(
        r"protocol\.md#what-version-(\d+)-changed\)\s+changes, last from (\d+) to (\d+)", text
    )
    assert (int(anchor), int(before), int(now)) == (VERSION, VERSION - 1, VERSION)


def test_a_table_is_read_as_it_is_written() -> None:
    table = [["", "a"], ["x", "1"], ["y", ""]]
    assert markdown(table) == "| | a |\n| --- | --- |\n| x | 1 |\n| y | |"
