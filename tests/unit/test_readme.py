"""What the README and the pages for operators and contributors tell people to type exists."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kestrelctl.cli.main import kestrelctl

CHECKOUT = Path(__file__).parents[2]
README = CHECKOUT / "README.md"
CONTRIBUTING = CHECKOUT / "CONTRIBUTING.md"
CHANGELOG = CHECKOUT / "CHANGELOG.md"
OPERATIONS = CHECKOUT / "docs" / "operations.md"
SECURITY = CHECKOUT / "docs" / "security.md"
COMMANDS = re.findall(r"^\$ \./kestrel (.*)$", README.read_text(), re.MULTILINE)
OF_OPERATORS = re.findall(
    r"^(?:\./kestrel|kestrelctl) ([^#\n]*)", OPERATIONS.read_text(), re.MULTILINE
)
OF_CONTRIBUTORS = re.findall(r"^\$ (.*)$", CONTRIBUTING.read_text(), re.MULTILINE)


def test_it_opens_with_the_two_commands() -> None:
    assert COMMANDS[:2] == ["bench --jobs 50000", "test"]


@pytest.mark.parametrize("line", [line for line in COMMANDS + OF_OPERATORS if line != "test"])
def test_every_command_is_understood(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "ansible-playbook":
        playbook = next(word for word in words if word.endswith(".yml"))
        text = (CHECKOUT / playbook).read_text()
        given = [words[i + 1] for i, word in enumerate(words) if word == "-e"]
        assert all(variable.partition("=")[0] in text for variable in given)
        return
    words = words[: words.index("--")] if "--" in words else words
    assert CliRunner().invoke(kestrelctl, [*words, "--help"]).exit_code == 0


@pytest.mark.parametrize("line", OF_CONTRIBUTORS)
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


@pytest.mark.parametrize(
    ("page", "link"),
    [
        (page, link)
        for page in (README, CONTRIBUTING, CHANGELOG, OPERATIONS)
        for link in re.findall(r"\]\((?!https:)([^)#]+)[^)]*\)", page.read_text())
    ],
)
def test_every_link_leads_somewhere(page: Path, link: str) -> None:
    assert (page.parent / link).exists()


def test_what_the_page_on_security_says_is_shown_is_there() -> None:
    named = re.findall(r"`((?:[a-z]+)/[a-z_/]+)(\.py)?[^`]*`", SECURITY.read_text())
    shown = [
        path + ending
        for path, ending in named
        if (CHECKOUT / "tests" / path.split("/")[0]).is_dir()
    ]
    assert len(shown) > 20
    assert [path for path in shown if not (CHECKOUT / "tests" / path).exists()] == []


def test_no_two_decisions_have_one_number() -> None:
    pages = sorted((CHECKOUT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
