"""The table of options, and what is made of it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
from reference import DOCS, job_file_schema, made

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.grammar.job_options import OPTIONS
from kestrelctl.grammar.option import Option

#: What the table may need: values, and how they are written.
ROOMS = ("kestrelctl.core.model.", "kestrelctl.grammar.", "kestrelctl.errors.")


def loaded_by(module: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after an import."""
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_table_needs_the_model_alone_and_no_parser() -> None:
    loaded = loaded_by("kestrelctl.grammar.job_options")
    own = {each for each in loaded if each.startswith("kestrelctl.")}
    outside = {each for each in own if not f"{each}.".startswith(ROOMS)}
    assert outside <= {"kestrelctl.core"}
    assert "click" not in loaded


def test_the_command_line_of_submit_is_made_without_the_engine() -> None:
    loaded = loaded_by("kestrelctl.cli.submit.commands")
    core = {each for each in loaded if each.startswith("kestrelctl.core.")}
    allowed = ("kestrelctl.core.model", "kestrelctl.core.classad")
    assert {each for each in core if not each.startswith(allowed)} == set()
    assert "asyncio" not in loaded


@pytest.mark.parametrize("option", [each for each in OPTIONS if each.lands], ids=lambda o: o.name)
def test_an_option_sets_a_field_that_there_is(option: Option) -> None:
    part, _, name = option.lands.rpartition(".")
    assert part in ("", "program")
    assert name in (Program if part else JobSpec).__struct_fields__


def test_no_two_options_have_a_name_or_a_field_in_common() -> None:
    names = [name for option in OPTIONS for name in (option.name, *option.also)]
    fields = [option.lands for option in OPTIONS if option.lands]
    assert len(set(names)) == len(names)
    assert len(set(fields)) == len(fields)


@pytest.mark.parametrize("path", made(), ids=lambda path: path.name)
def test_what_is_made_of_the_table_is_up_to_date(path: Path) -> None:
    assert path.read_text() == made()[path], "run .venv/bin/python tests/check/reference.py"


def test_job_files_of_the_documents_fit_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(job_file_schema())
    page = (DOCS / "cli.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```toml\n")[1:]]
    job_files = [each for each in map(tomllib.loads, blocks) if {"command", "job"} & each.keys()]
    assert job_files
    for each in job_files:
        validator.validate(each)
    assert not validator.is_valid({"command": ["x"], "max-runnning": 3})
    assert not validator.is_valid({"command": ["x"], "max-running": 0})
    assert not validator.is_valid({"cpus": 1})
