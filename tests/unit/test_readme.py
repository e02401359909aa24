"""What the README tells people to type exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kestrelctl.cli.main import kestrelctl

README = Path(__file__).parents[2] / "README.md"
COMMANDS = re.findall(r"^\$ \./kestrel (.*)$", README.read_text(), re.MULTILINE)


def test_it_opens_with_the_two_commands() -> None:
    assert COMMANDS[:2] == ["bench --jobs 50000", "test"]


@pytest.mark.parametrize("line", [line for line in COMMANDS if line != "test"])
def test_every_command_is_understood(line: str) -> None:
    words = shlex.split(line)
    words = words[: words.index("--")] if "--" in words else words
    assert CliRunner().invoke(kestrelctl, [*words, "--help"]).exit_code == 0


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", README.read_text()))
def test_every_link_leads_somewhere(link: str) -> None:
    assert (README.parent / link).exists()
