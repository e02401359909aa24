"""What the help of every command looks like, and what a new user is told to type next."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import pytest
from cli_fake_pool import CONTEXT, FakePool, run
from click.testing import CliRunner
from commandlines import EVERYTHING, WIDTH, options

from kestrelctl.cli.command import Invocation, Noun, long_name
from kestrelctl.cli.local import FIRST_JOB
from kestrelctl.cli.main import SECTIONS, kestrelctl
from kestrelctl.local import control
from kestrelctl.local.pool_state import PoolState

CHECKOUT = Path(__file__).parents[3]
#: Those whose help has examples at the least; an integration test types all that there are.
WITH_EXAMPLES = ("", "up", "submit", "job", "worker", "pool", "down")
#: What no help begins with: such a text is no whole sentence, and readers have to guess the rest.
NO_BEGINNING = re.compile(
    r"(What|Whatever|Whether|Which|Who|Whoever|Whom|Whose|Where|When|Why|How|That|Those|These|This"
    r"|It|They|Of|With|Without|From|Under|As|In|On|At|By|For|To|So|Only|Also|Rather|And|No|Not)\b"
)


GROUPS = [name for name, context in EVERYTHING.items() if isinstance(context.command, click.Group)]


def has_a_beginning(text: str) -> bool:
    """Whether a text begins with a verb, a noun, or an article before one."""
    return text[:1].isupper() and not NO_BEGINNING.match(text)


@pytest.mark.parametrize("name", EVERYTHING)
def test_help_of_a_command_and_of_its_options_begins_with_a_verb_or_a_noun(name: str) -> None:
    command = EVERYTHING[name].command
    said = {name: command.help or ""} | {opt.opts[-1]: opt.help or "" for opt in options(name)}
    assert {what: text for what, text in said.items() if not has_a_beginning(text)} == {}


def test_a_text_that_leaves_its_beginning_to_the_reader_is_found() -> None:
    for text in ("", "[default: 5]", "Of each.", "Whether it waits.", "only there"):
        assert not has_a_beginning(text)
    assert has_a_beginning("The longest pause.")


@pytest.mark.parametrize("name", GROUPS)
def test_help_of_a_group_lists_each_command_once(name: str) -> None:
    group, context = EVERYTHING[name].command, EVERYTHING[name]
    assert isinstance(group, Noun)
    names = group.list_commands(context)
    lines = Counter(re.findall(r"^  ([a-z][a-z-]*) ", group.get_help(context), re.MULTILINE))
    assert {each: lines[each] for each in names} == dict.fromkeys(names, 1)


@pytest.mark.parametrize("name", GROUPS)
def test_headings_of_a_group_hold_all_of_its_commands(name: str) -> None:
    group = EVERYTHING[name].command
    assert isinstance(group, Noun)
    under = " ".join(group.command_sections.values()).split()
    assert sorted(under) == (sorted(group.list_commands(EVERYTHING[name])) if under else [])


@pytest.mark.parametrize("name", EVERYTHING)
def test_headings_of_a_command_hold_all_of_its_own_options(name: str) -> None:
    headings = getattr(EVERYTHING[name].command, "option_sections", {})
    under = " ".join(headings.values()).split()
    common = {"output", "o", "no-color", "quiet", "verbose", "help"}
    if not any(option.expose_value for option in options(name) if long_name(option) == "pool"):
        common.add("pool")
    own = [long_name(each) for each in options(name) if long_name(each) not in common]
    assert sorted(under) == (sorted(own) if under else [])


@pytest.mark.parametrize("name", EVERYTHING)
def test_help_fits_a_hundred_columns(name: str) -> None:
    text = EVERYTHING[name].command.get_help(EVERYTHING[name])
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_commands_that_are_used_most_show_examples(name: str) -> None:
    examples = EVERYTHING[name].command.examples  # type: ignore[attr-defined]
    text = EVERYTHING[name].command.get_help(EVERYTHING[name])
    assert examples
    assert all(f"\n  {line}\n" in text for line in examples)


def test_the_five_commands_that_matter_come_first_and_it_says_where_more_is() -> None:
    assert next(iter(SECTIONS.values())) == "up submit job top down"
    text = run(FakePool(), "--help").stdout
    first = text.index("First commands:\n  up ")
    assert first < min(text.index(f"\n{heading}:") for heading in list(SECTIONS)[1:])
    assert (CHECKOUT / re.findall(r"docs/\w+\.md", text)[-1]).exists()


def test_without_a_command_there_is_help_as_good_as_asked_for() -> None:
    for args in ((), ("job",), ("worker", "group")):
        result = run(FakePool(), *args)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == run(FakePool(), *args, "--help").stdout


# -- what to type next -----------------------------------------------------------------------------


def test_help_and_proposals_call_the_program_as_the_user_did() -> None:
    def called(*words: str) -> tuple[str, str]:
        invocation = Invocation(open_pool=FakePool().open, find_context=lambda _: CONTEXT)
        result = CliRunner().invoke(kestrelctl, words, obj=invocation, prog_name="./kestrel")
        return result.stdout, result.stderr

    assert called("submit", "--help")[0].startswith("Usage: ./kestrel submit ")
    assert "\n  ./kestrel submit --wait -- hostname\n" in called("submit", "--help")[0]
    assert "kestrelctl" not in called("job", "--help")[0]
    assert called("submit", "ls")[1].startswith("next: ./kestrel job wait 7, or ./kestrel job ")
    assert called("job", "jump")[1].endswith("hint: ./kestrel job --help\n")


def test_the_program_is_told_how_it_was_called_and_tells_nobody_else() -> None:
    program = (
        "import os; from kestrelctl.cli.main import main\ntry: main()\nfinally: print(os.environ)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "top", "--help"],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "KESTREL_CALLED_AS": "/a b/kestrel"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("Usage: '/a b/kestrel' top ")
    assert "KESTREL_CALLED_AS" not in done.stdout


def test_after_waiting_it_says_where_the_output_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(FakePool(), "submit", "--wait", "ls").stderr.endswith(
        "next: kestrelctl job logs 7 --all\n"
    )
    assert "next" not in run(FakePool(), "submit", "--stdout", "{n}.txt", "ls").stderr


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would start a pool says that it did."""

    async def up(name: str, *_args: object, **_options: object) -> PoolState:
        return PoolState(
            name=name, pid=1, domain="d", host="h", port=1, user="u", password_file="p",
            admin="a", admin_password_file="q", workers=1, server_pid=2, manager_pid=3,
            worker_pids=[4],
        )  # fmt: skip

    monkeypatch.setattr(control, "up", up)
    monkeypatch.setattr(control, "kept_jobs", lambda _name: None)


def told_after_up(usual: str, *words: str) -> str:
    """What `up` says where commands without `--pool` ask the pool of that name."""
    from msgspec.structs import replace

    return run(FakePool(), "up", *words, context=replace(CONTEXT, name=usual)).stderr


@pytest.mark.usefixtures("started")
def test_a_pool_that_is_up_leads_to_a_first_result() -> None:
    assert told_after_up("default") == f"next: {FIRST_JOB}\n"
    assert "--wait" in FIRST_JOB
    assert FIRST_JOB.endswith("&& kestrelctl job logs last --all")


@pytest.mark.usefixtures("started")
def test_it_names_the_pool_where_another_one_would_be_asked() -> None:
    for said in (told_after_up("lab"), told_after_up("default", "--name", "b")):
        assert said.count("kestrelctl --pool ") == said.count("kestrelctl ") == 2
    assert "--pool default " in told_after_up("lab")
    assert "--pool b " in told_after_up("default", "--name", "b")
