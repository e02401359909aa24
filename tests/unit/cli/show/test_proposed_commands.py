"""Commands that kestrelctl proposes begin as the user's did, and ask the pool that was asked."""

from __future__ import annotations

import json

import click
import pytest
from cli_fake_pool import FakePool, run
from commandlines import LEAVES

from kestrelctl.cli.show.screen import as_called
from kestrelctl.errors import NotFound


def talks(command: click.Command) -> bool:
    return any("--pool" in param.opts for param in command.params)


#: Whose `--pool` is about something else: which of those on this machine, or what to measure.
OWN_MEANING = {
    "up", "down", "worker run", "worker service", "manager backup", "manager restore",
    "manager migrate", "bench",
}  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_each_command_that_talks_to_a_pool_names_it_and_no_other_does(name: str) -> None:
    named = as_called(f"see `kestrelctl {name} X`", "kestrelctl", "b")
    if talks(LEAVES[name]) and name not in OWN_MEANING:
        assert named == f"see `kestrelctl --pool b {name} X`"
    else:
        assert named == f"see `kestrelctl {name} X`"


def test_the_usual_pool_is_not_named() -> None:
    assert as_called("kestrelctl job list", "kestrelctl", "") == "kestrelctl job list"


def test_every_command_of_a_text_names_it_and_names_are_quoted() -> None:
    text = "kestrelctl job list, or `kestrelctl top`; mykestrelctl up"
    assert as_called(text, "kestrelctl", "a b") == (
        "kestrelctl --pool 'a b' job list, or `kestrelctl --pool 'a b' top`; mykestrelctl up"
    )


def test_a_hint_of_the_manager_proposes_a_command_for_the_pool_that_was_asked() -> None:
    pool = FakePool(ListJobs=NotFound("there is no job 7", hint="`kestrelctl job list` shows all"))
    said = run(pool, "job", "info", "7", "--pool", "b").stderr
    assert said.endswith("hint: `kestrelctl --pool b job list` shows all\n")
    said = run(pool, "job", "info", "7").stderr
    assert said.endswith("hint: `kestrelctl job list` shows all\n")


def test_programs_are_given_the_hint_as_it_came() -> None:
    pool = FakePool(ListJobs=NotFound("there is no job 7", hint="`kestrelctl job list` shows all"))
    said = run(pool, "-o", "json", "--pool", "b", "job", "info", "7").stderr
    assert json.loads(said)["error"]["hint"] == "`kestrelctl job list` shows all"


def test_sentences_and_remarks_name_it_too() -> None:
    said = run(FakePool(), "flock", "join", "c.test", "--pool", "b").stdout
    assert "`kestrelctl --pool b flock status` tells" in said
    said = run(FakePool(), "submit", "--pool", "b", "--", "true").stderr
    assert "next: kestrelctl --pool b job wait" in said
    assert ", or kestrelctl --pool b job tasks" in said


def test_commands_are_proposed_as_the_user_called_the_program() -> None:
    text = "`kestrelctl up`, or `kestrelctl job wait 7 && kestrelctl job logs 7`"
    assert as_called(text, "./kestrel", "b") == (
        "`./kestrel up`, or `./kestrel --pool b job wait 7 && ./kestrel --pool b job logs 7`"
    )


def test_a_command_for_another_machine_stays_as_it_is() -> None:
    for words in ("worker join TOKEN", "worker environment FILE CLASS TOKEN"):
        assert as_called(f"kestrelctl {words}", "./kestrel", "") == f"kestrelctl {words}"
    assert as_called("kestrelctl worker run", "./kestrel", "") == "./kestrel worker run"
