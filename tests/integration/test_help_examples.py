"""The examples that help shows, and what `up` says is next, typed at a real pool."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from page_desk import Desk

from kestrelctl.cli.command import CliCommand, Noun
from kestrelctl.cli.main import COMMANDS, kestrelctl

pytestmark = pytest.mark.timeout(300)

CHECKOUT = Path(__file__).parents[2]
#: A bench makes a pool of its own, which takes its time.
WITH_OTHER_TESTS = ("bench",)


def commands_in_order() -> list[str]:
    """All commands, `up` first and `down` last."""
    between = [name for name in COMMANDS if name not in ("up", "down", *WITH_OTHER_TESTS)]
    return ["up", *between, "down"]


def examples_of(name: str) -> list[tuple[str, str]]:
    """The examples of a command and of those below it, each with whose it is."""

    def below(path: str, command: click.Command) -> Iterator[tuple[str, str]]:
        assert isinstance(command, (CliCommand, Noun))
        yield from ((path, line) for line in command.examples)
        if isinstance(command, Noun):
            context = click.Context(command)
            for verb in command.list_commands(context):
                each = command.get_command(context, verb)
                assert each is not None
                yield from below(f"{path} {verb}", each)

    command = kestrelctl.get_command(click.Context(kestrelctl), name)
    assert command is not None
    return list(below(name, command))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk whose pools go in the end."""
    found = Desk(tmp_path)
    yield found
    for directory in (tmp_path / "state/kestrel/pools").glob("*"):
        found.types(f"kestrelctl down --name {directory.name} --delete --yes")


def test_every_example_of_help_works_when_it_is_typed(desk: Desk) -> None:
    assert isinstance(kestrelctl, Noun)
    examples = [("", line) for line in (*kestrelctl.examples, "kestrelctl down")]
    for name in commands_in_order():
        examples += examples_of(name)
    assert len(examples) > 20
    for whose, line in examples:
        *shown, status = desk.types(f"{line}\necho $?")
        assert status == "0", (whose, line, shown)
        assert shown, (whose, line)


@pytest.mark.parametrize(
    ("program", "name"),
    [(shlex.quote(str(CHECKOUT / "kestrel")), "default"), ("kestrelctl", "b")],
)
def test_what_up_says_is_next_shows_what_the_tasks_wrote(
    desk: Desk, program: str, name: str
) -> None:
    [line] = desk.types(f"{program} up --name {name} 2>&1 | sed -n 's/^next: //p'")
    assert line.startswith(f"{program} ")
    assert desk.types(line)[-6:] == [
        text for n in (1, 2, 3) for text in (f"==> task {n} <==", f"hello from task {n}")
    ]
