"""What docs/batch.md shows can be used as it stands, and is what the lab tries."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kestrelctl.core.batch.question import SYSTEMS, BatchQuestion
from kestrelctl.core.environments.class_files import read_classes
from kestrelctl.core.properties.definition import read_definitions
from kestrelctl.core.triggers.definition import read_triggers
from kestrelctl.grammar.quantities import parse_size

CHECKOUT = Path(__file__).parents[4]
PAGE = (CHECKOUT / "docs/batch.md").read_text()
LAB = CHECKOUT / "tests/molecule/environments/files"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def test_its_property_asks_what_slurm_answers() -> None:
    [definition] = read_definitions(blocks("ini")[0], "batch.md")
    command, *words = definition.words
    assert command == "batch"
    assert [each[0] for each in BatchQuestion(words).commands] == ["squeue"]


def test_its_class_and_its_triggers_are_of_one_mind() -> None:
    [mpi] = read_classes(blocks("toml")[0], "batch.md", parse_size).values()
    more, none = read_triggers(blocks("ini")[1], "batch.md")
    assert f"stopping < {mpi.maximum}" in str(more.expression.text)
    assert mpi.runs[0] == "slurm-node"
    assert f'start_environment("{mpi.name}")' in blocks("ini")[1]
    assert none.for_seconds == 300


def test_the_lab_runs_its_script_with_its_configuration() -> None:
    assert blocks("sh") == [(LAB / "slurm-node").read_text()]
    in_lab = (LAB / "slurm.conf").read_text().splitlines()
    [lines] = blocks("")
    assert [line for line in lines.splitlines() if line not in in_lab] == []


def test_it_names_the_commands_that_are_run() -> None:
    for name, system in SYSTEMS.items():
        [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
        for command in {*system.jobs, system.nodes}:
            assert shlex.join(command[:2]).partition(" ")[0] in row
