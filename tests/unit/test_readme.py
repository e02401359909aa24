"""What the README and the operator's page tell people to type exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kestrelctl.cli.main import kestrelctl

CHECKOUT = Path(__file__).parents[2]
README = CHECKOUT / "README.md"
OPERATIONS = CHECKOUT / "docs" / "operations.md"
COMMANDS = re.findall(r"^\$ \./kestrel (.*)$", README.read_text(), re.MULTILINE)
OF_OPERATORS = re.findall(
    r"^(?:\./kestrel|kestrelctl) ([^#\n]*)", OPERATIONS.read_text(), re.MULTILINE
)


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


@pytest.mark.parametrize(
    ("page", "link"),
    [
        (page, link)
        for page in (README, OPERATIONS)
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text())
    ],
)
def test_every_link_leads_somewhere(page: Path, link: str) -> None:
    assert (page.parent / link).exists()
