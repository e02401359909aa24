"""Manual pages: each command has one, with all that its help says, and roff misreads none of it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import click
import pytest
from commandlines import EVERYTHING, options

from kestrelctl.cli.command import long_name
from kestrelctl.cli.man_pages import main, man_pages

PAGES = man_pages("1.2.3")
#: Commands of the package; those of experiments are in a checkout only.
OWN = [
    name
    for name, context in EVERYTHING.items()
    if (context.command.callback.__module__ or "").startswith("kestrelctl.")
]
#: The requests and macros that a page may use.
MACROS = {".TH", ".SH", ".PP", ".TP", ".BR", ".nf", ".fi"}


def page_of(name: str) -> str:
    return PAGES["-".join(["kestrelctl", *name.split()]) + ".1"]


def shown(page: str) -> str:
    """The text of a page, without fonts, as a terminal would show it."""
    text = re.sub(r"\\f[BIR]", "", page)
    return text.replace("\\-", "-").replace("\\(dq", '"').replace("\\&", "").replace("\\e", "\\")


def test_each_command_has_a_page() -> None:
    assert set(PAGES) == {"-".join(["kestrelctl", *name.split()]) + ".1" for name in OWN}


@pytest.mark.parametrize("name", OWN)
def test_a_page_has_all_options_of_the_command(name: str) -> None:
    lines = shown(page_of(name)).splitlines()
    terms = [lines[place + 1] for place, line in enumerate(lines) if line == ".TP"]
    found = Counter(word for each in terms for word in re.split(r"[ ,/]+", each))
    names = [f"--{long_name(option)}" for option in options(name)]
    assert {each: found[each] for each in names} == dict.fromkeys(names, 1)


@pytest.mark.parametrize("name", PAGES)
def test_roff_reads_no_macro_out_of_a_text(name: str) -> None:
    page = PAGES[name]
    assert {line.split()[0] for line in page.splitlines() if line[:1] in (".", "'")} <= MACROS
    assert "" not in page.splitlines(), "an empty line is a break of its own"
    sections = re.findall(r'^\.SH "(.*)"$', page, re.MULTILINE)
    assert sections[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    assert sections[-1] == "SEE ALSO"
    assert len(sections) == len(set(sections))


def test_pages_name_each_other() -> None:
    named = [re.findall(r"^\.BR (\S+) \(1\),?$", page, re.MULTILINE) for page in PAGES.values()]
    assert {f"{shown(other)}.1" for others in named for other in others} == set(PAGES)
    assert all(named), "each has a page above it, or some below"


def test_what_a_reader_of_a_page_looks_for_is_there() -> None:
    text = shown(page_of("submit"))
    assert '.TH "KESTRELCTL-SUBMIT" 1 "" "Kestrel 1.2.3" "Kestrel"\n' in text
    assert "kestrelctl-submit - run a command as a job of one or many tasks\n" in text
    assert '.SH "WHEN IT RUNS"\n' in text
    assert "\n--begin TIME\nStart nothing of the job before:" in text
    assert "kestrelctl submit --array 1-100 --cpus 0.5 -- sh -c 'echo $((42 * {}))'\n" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_say_about_any_page(tmp_path: Path) -> None:
    main([str(tmp_path)])
    done = subprocess.run(
        ["groff", "-k", "-man", "-Tutf8", "-ww", "-z", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_text_that_begins_like_a_macro_is_shown() -> None:
    @click.command(help='.TH is a macro.\n\n\'tis \\fB and "so".')
    def odd() -> None: ...

    from kestrelctl.cli.man_pages import _page

    page = _page(click.Context(odd, info_name="odd"), "1")
    assert "\n\\&.TH is a macro.\n" in page
    assert "\n\\&'tis \\efB and \\(dqso\\(dq.\n" in page
