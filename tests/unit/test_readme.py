"""What the README and each reader's first page tell people to type exists, and is short."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from console_blocks import typed

from kestrelctl.cli.main import kestrelctl

CHECKOUT = Path(__file__).parents[2]
README = CHECKOUT / "README.md"
FIRST_STEPS = CHECKOUT / "docs" / "first-steps.md"
OPERATIONS = CHECKOUT / "docs" / "operations.md"
CONTRIBUTING = CHECKOUT / "CONTRIBUTING.md"
SECURITY = CHECKOUT / "docs" / "security.md"
TEXT = README.read_text()


def commands(page: Path) -> list[str]:
    """What a page has its reader type."""
    return [each.command for each in typed(page.read_text())]


def of_kestrel(page: Path) -> list[str]:
    """The words behind `./kestrel` or `kestrelctl` of all such commands of a page."""
    found = [re.match(r"(?:\./kestrel|kestrelctl) ([^#]*)", line) for line in commands(page)]
    return [each[1].strip() for each in found if each]


def test_it_can_be_read_in_two_minutes() -> None:
    assert len(TEXT.split()) <= 600


def test_it_opens_with_the_two_commands() -> None:
    assert commands(README)[:2] == ["./kestrel bench --jobs 50000", "./kestrel test"]


def test_it_shows_one_or_two_pictures() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    assert 1 <= len(pictures) <= 2
    assert [path for path in pictures if not (CHECKOUT / path).exists()] == []


def test_its_tables_have_few_rows() -> None:
    assert len(re.findall(r"^\|", TEXT, re.MULTILINE)) <= 8


def test_a_job_is_submitted_and_its_result_seen() -> None:
    verbs = [re.sub(r" .*", "", line) for line in of_kestrel(README)]
    at = verbs.index("up")
    assert verbs[at : at + 4] == ["up", "submit", "job", "down"]


def test_it_leads_to_the_documentation_and_each_readers_first_page() -> None:
    for page in ("docs/index.md", "docs/first-steps.md", "docs/operations.md", "CONTRIBUTING.md"):
        assert f"]({page})" in TEXT


def test_the_first_steps_are_few() -> None:
    assert 300 <= len(FIRST_STEPS.read_text().split()) <= 500


@pytest.mark.parametrize(
    "line", [line for page in (README, FIRST_STEPS, OPERATIONS) for line in of_kestrel(page)]
)
def test_every_command_is_understood(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "test":  # of the script, which hands it to pytest
        return
    if words[0] == "ansible-playbook":
        playbook = next(word for word in words if word.endswith(".yml"))
        text = (CHECKOUT / playbook).read_text()
        given = [words[i + 1] for i, word in enumerate(words) if word == "-e"]
        assert all(variable.partition("=")[0] in text for variable in given)
        return
    words = words[: words.index("--")] if "--" in words else words
    assert CliRunner().invoke(kestrelctl, [*words, "--help"]).exit_code == 0


@pytest.mark.parametrize("line", commands(CONTRIBUTING))
def test_contributors_can_type_what_they_are_told(line: str) -> None:
    program, *words = shlex.split(line)
    if program != "./kestrel":
        assert program.startswith(".venv/bin/")
        assert shutil.which(Path(program).name, path=Path(sys.executable).parent)
        return
    assert words[0] == "test"
    for word in words:
        path, _, name = word.partition("::")
        if "/" in path:
            assert (CHECKOUT / path).exists()
        if name:
            assert f"def {name}(" in (CHECKOUT / path).read_text()


def test_what_the_page_on_security_says_is_shown_is_there() -> None:
    named = re.findall(r"`((?:[a-z]+)/[a-z0-9_/]+)(\.py)?[^`]*`", SECURITY.read_text())
    shown = [
        path + ending
        for path, ending in named
        if (CHECKOUT / "tests" / path.split("/")[0]).is_dir()
    ]
    assert len(shown) > 20
    assert [path for path in shown if not (CHECKOUT / "tests" / path).exists()] == []
