"""Pictures of the documentation: they are there, light, need nothing else, and are explained."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from kestrelctl.cli.main import kestrelctl

PICTURES = Path(__file__).parents[2] / "docs/pictures"
NAMES = ("bench.svg", "dashboard.svg", "top.svg")
MOST_BYTES = 150_000


def test_these_are_the_pictures() -> None:
    assert tuple(sorted(path.name for path in PICTURES.glob("*.svg"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_well_formed_and_light(name: str) -> None:
    data = (PICTURES / name).read_bytes()
    assert len(data) <= MOST_BYTES
    assert ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_needs_no_other_file(name: str) -> None:
    text = (PICTURES / name).read_text()
    without_namespaces = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    assert "://" not in without_namespaces
    assert re.findall(r'href="(?!#)|url\((?!#)|@import|<image', without_namespaces) == []


def test_each_picture_is_explained_beside_the_command_that_makes_it() -> None:
    text = (PICTURES / "README.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []
    (command,) = re.findall(r"^\.venv/bin/python (\S+)$", text, re.MULTILINE)
    made = (PICTURES.parents[1] / command).read_text()
    assert [name for name in NAMES if f'"{name}"' not in made] == []


def test_the_bench_of_a_picture_is_understood() -> None:
    text = (PICTURES / "README.md").read_text()
    (line,) = re.findall(r"`kestrelctl (bench --sweep [^`]*)`", text)
    assert CliRunner().invoke(kestrelctl, [*shlex.split(line), "--help"]).exit_code == 0
