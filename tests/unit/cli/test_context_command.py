"""Contexts: the configuration of pools, changed by commands, and by nobody else's hand."""

from __future__ import annotations

import fcntl
import shlex
import stat
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO

import pytest
from click.testing import CliRunner, Result

from kestrelctl.access import context_file
from kestrelctl.access.context import find_context
from kestrelctl.access.context_file import add_context
from kestrelctl.cli.main import kestrelctl

ADD = "context add {} --jid ada@example.org --domain pool.example.org"

FIELDS: dict[str, str | int | bool] = {
    "jid": "ada@example.org",
    "password_file": "password",
    "pool": "pool.example.org",
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration, which is not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KESTREL_POOL", raising=False)
    return tmp_path / "config" / "kestrel" / "config.toml"


def types(line: str, stdin: str = "secret\n", status: int = 0) -> Result:
    done = CliRunner().invoke(kestrelctl, line.split(), input=stdin)
    assert done.exit_code == status, done.output
    return done


def test_a_context_is_added_with_a_password_that_nobody_else_reads(config: Path) -> None:
    types(ADD.format("lab") + " --port 5333")
    found = find_context("")
    assert (found.name, found.pool, found.host, found.port) == (
        "lab", "pool.example.org", "example.org", 5333,
    )  # fmt: skip
    assert found.user.password_file.read_text() == "secret\n"
    for file in (config, found.user.password_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in config.read_text()
    assert "secret" not in types("context show -o json").output


def test_the_first_one_is_used_until_another_is_chosen(config: Path) -> None:
    types(ADD.format("lab"))
    types(ADD.format("farm"))
    assert types("context list -q -o quiet").output.split() == ["farm", "lab"]
    assert find_context("").name == "lab"
    types("context use farm")
    assert find_context("").name == "farm"
    types("context use lab")
    assert find_context("").name == "lab"
    assert config.read_text().count("default") == 1


def test_two_that_are_added_at_once_are_both_there(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, lock = context_file.check_config, fcntl.flock
    others: list[Thread] = []
    waits = Event()

    def locked(file: BinaryIO, how: int) -> None:
        if others:
            waits.set()
        lock(file, how)

    def checked(text: str, file: Path) -> None:
        """Another command begins when the first has read the configuration."""
        if not others:
            others.append(Thread(target=lambda: add_context("farm", FIELDS)))
            others[0].start()
            assert waits.wait(10)
        checks(text, file)

    monkeypatch.setattr(fcntl, "flock", locked)
    monkeypatch.setattr(context_file, "check_config", checked)
    add_context("lab", FIELDS)
    others[0].join()
    assert types("context list -q -o quiet").output.split() == ["farm", "lab"]
    assert find_context("").name == "lab"


def test_lines_written_by_hand_stay(config: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text(
        '# mine\ndefault = "old"  # for now\n\n[context.old]\njid = "a@b.org"  # me\n'
        'password_file = "p"\npool = "pool.b.org"\n'
    )
    types(ADD.format("lab"))
    types("context use lab")
    text = config.read_text()
    assert "# mine\n" in text
    assert 'jid = "a@b.org"  # me\n' in text
    types("context remove lab")
    assert "# mine\n" in config.read_text()
    assert find_context("old").user.jid == "a@b.org"


def test_a_remark_on_the_next_context_stays_with_it(config: Path) -> None:
    types(ADD.format("lab"))
    with config.open("a") as file:
        table = 'jid = "a@b.org"\npassword_file = "p"\npool = "pool.b.org"\n'
        file.write(f"# no longer used\n\n# that of the institute\n[context.farm]\n{table}")
    types("context remove lab")
    assert config.read_text().startswith("# that of the institute\n[context.farm]\n")


def test_a_configuration_that_is_kept_elsewhere_stays_there(config: Path, tmp_path: Path) -> None:
    """People link to it from where they keep all their settings."""
    elsewhere = tmp_path / "settings" / "kestrel.toml"
    elsewhere.parent.mkdir()
    elsewhere.touch()
    config.parent.mkdir(parents=True)
    config.symlink_to(elsewhere)
    types(ADD.format("lab"))
    assert config.is_symlink()
    assert "[context.lab]" in elsewhere.read_text()
    assert [each.name for each in elsewhere.parent.iterdir()] == ["kestrel.toml"]


@pytest.mark.parametrize("written", ['  default = "old"', '"default" = "old"', "default='old'"])
def test_a_default_is_replaced_however_it_was_written(config: Path, written: str) -> None:
    """A second one would make a file of it that no command can read."""
    config.parent.mkdir(parents=True)
    config.write_text(
        f'{written}\n[context.old]\njid = "a@b.org"\npassword_file = "p"\npool = "pool.b.org"\n'
    )
    types(ADD.format("lab"))
    types("context use lab")
    assert find_context("").name == "lab"
    types("context use old")
    types("context remove old")
    assert find_context("").name == "lab"


def test_a_name_with_a_backslash_is_a_default_like_any_other(config: Path) -> None:
    config.parent.mkdir(parents=True)
    table = 'jid = "a@b.org"\npassword_file = "p"\npool = "pool.b.org"\n'
    config.write_text(f"default = 'x'\n[context.'a\\b']\n{table}[context.x]\n{table}")
    types("context use a\\b")
    assert find_context("").name == "a\\b"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (ADD.format("lab"), "there is a context lab already"),
        (ADD.format("a/b"), "cannot be the name of a context"),
        ("context remove none", "has no context none"),
        ("context use none", "no pool 'none' is known"),
        ("context use ''", "a context has a name"),
        ("context show none", "no pool 'none' is known"),
    ],
)
def test_what_makes_no_sense_changes_nothing(config: Path, line: str, says: str) -> None:
    types(ADD.format("lab"))
    before = config.read_text()
    done = CliRunner().invoke(kestrelctl, shlex.split(line), input="x\n")
    assert done.exit_code != 0
    assert says in done.output
    assert config.read_text() == before


def test_a_wrong_configuration_is_told_and_left_alone(config: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_text("[context.lab\n")
    done = CliRunner().invoke(kestrelctl, ADD.format("other").split(), input="x\n")
    assert "is not TOML" in done.output
    assert config.read_text() == "[context.lab\n"
    assert not (config.parent / "other.password").exists()


def test_an_empty_password_is_refused(config: Path) -> None:
    done = types(ADD.format("lab"), stdin="\n", status=2)
    assert "is empty" in done.output
    assert not config.exists()


def test_a_name_with_a_dot_is_no_table_in_a_table(config: Path) -> None:
    types(ADD.format("lab.west"))
    assert find_context("lab.west").pool == "pool.example.org"
    types("context remove lab.west")
    assert "lab.west" not in config.read_text()


def test_any_text_is_written_so_that_it_is_read_again(config: Path) -> None:
    types(ADD.format("lab") + ' --host h"\\ü😀.example.org')
    assert find_context("lab").host == 'h"\\ü😀.example.org'
