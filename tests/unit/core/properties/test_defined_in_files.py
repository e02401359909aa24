"""Files in which operators define things, with the slips that one makes in such files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.core.membership.handler_definition import read_handlers
from kestrelctl.core.properties.command_definition import read_commands
from kestrelctl.core.properties.definition import read_definitions
from kestrelctl.core.triggers.definition import read_triggers
from kestrelctl.defined_in_files import all_defined
from kestrelctl.errors import UsageError

READERS = (read_commands, read_handlers, read_definitions, read_triggers)
GOOD = "[ram_free]\ncommand = ram\nreturn_type = int\nticks = 60\n"


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "written",
    [
        b"[a]\n[a]\n",
        b"[a]\nticks = 5\nticks = 6\n",
        b"[a\nticks = 5\n",
        b"[]\nticks = 5\n",
        b"[\x00]\nticks = 5\n",
        b"[DEFAULT]\nticks = 5\n[a]\n",
        b"ticks = 5\n",
        b"[a]\nticks\n",
        b"[a]\n= 5\n",
        b"  [a]\n   ticks = 5\n",
        b"[a]\nexpr = %(ticks)s %%\n",
        b"\xff\xfe[\x00a\x00]\x00",
        b"[a]\nmail = \xe4\n",
        b"x" * 1_000_000,
        b"[a]\n" + b"x = 1\n" * 100_000,
        b"[a]\nexpr = " + b"(" * 1_000_000,
        b"".join(b"[s%d]\nx = 1\n" % n for n in range(2_000)),
    ],
)
def test_a_slip_is_told_in_a_few_lines(read: object, written: bytes, tmp_path: Path) -> None:
    file = tmp_path / "rules.ini"
    file.write_bytes(written)
    with pytest.raises(UsageError) as raised:
        all_defined([file], read, 1_000)  # type: ignore[arg-type]
    told = f"{raised.value.message} {raised.value.cause} {raised.value.hint}"
    assert "rules.ini" in told
    assert len(told) < 1_000


def test_a_file_that_begins_as_some_editors_begin_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rules.ini"
    file.write_text("\ufeff" + GOOD.replace("\n", "\r\n"))
    assert list(all_defined([file], read_definitions, 10)) == ["ram_free"]


def test_a_directory_or_nothing_is_no_file(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match="cannot be read"):
            all_defined([place], read_definitions, 10)
