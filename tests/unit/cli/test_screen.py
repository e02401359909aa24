"""What is said beside the data: below them, and on lines of its own, wherever both are read."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.cli.show.screen import Screen
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.job_answers import TaskOutput


def printed(program: str, *, apart: bool = False) -> str:
    """What a program printed with a `Screen`: all that a pipe got, or standard output alone."""
    begin = "from kestrelctl.cli.show.screen import Screen\nscreen = Screen()\n"
    return subprocess.run(
        [sys.executable, "-c", begin + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if apart else subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        text=True,
        check=True,
    ).stdout


def test_what_is_said_after_the_data_stands_below_them() -> None:
    program = 'screen.write("pool c is down\\n")\nscreen.say("3 jobs: deleted")\n'
    assert printed(program) == "pool c is down\n3 jobs: deleted\n"


def test_what_is_said_after_data_without_an_end_of_line_has_a_line_of_its_own() -> None:
    program = 'screen.write_bytes(b"hello")\nscreen.warn("no more")\nscreen.say("next")\n'
    assert printed(program) == "hello\nwarning: no more\nnext\n"


def test_data_that_go_elsewhere_stay_as_they_are() -> None:
    program = 'screen.write_bytes(b"hello")\nscreen.say("no more")\n'
    assert printed(program, apart=True) == "hello"


def on_a_full_disk(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with an output that has no room; it keeps what it prints until it is much."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        return subprocess.run(
            [sys.executable, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )


def test_a_full_disk_is_told_of_as_that() -> None:
    """Whatever was to be written: the output, or a file among temporary ones."""
    for words in (["--version"], ["--help"], ["context", "list", "-o", "json"]):
        found = on_a_full_disk("-m", "kestrelctl", *words)
        assert found.returncode == 1
        assert "this should not have happened" not in found.stderr
        assert "No space left on device" in found.stderr


def test_the_status_of_an_error_stays_though_what_was_printed_before_has_no_room() -> None:
    program = """\
import click
from kestrelctl.cli.main import kestrelctl
from kestrelctl.errors import NotFound

@click.command("part")
def part() -> None:
    print("a part", end="")
    raise NotFound("the rest is gone")

kestrelctl.add_command(part)
kestrelctl.main(["part"])
"""
    found = on_a_full_disk("-c", program)
    assert (found.returncode, found.stderr) == (7, "error: the rest is gone\n")


def test_a_remark_tells_a_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker says why a task has ended, and somebody else's file is the input of a map."""
    screen = Screen(verbose=True)
    screen.say("task 1 failed: \x1b[2J\nhint: try\ragain")
    screen.detail("no answer (\x1b]0;owned\x07)")
    assert capsys.readouterr().err.splitlines() == [
        "task 1 failed: \\x1b[2J",
        "hint: try again",
        "no answer (\\x1b]0;owned\\x07)",
    ]


def test_remarks_that_nobody_can_read_stop_nothing() -> None:
    program = "from kestrelctl.cli.show.screen import Screen\nscreen = Screen()\n"
    program += 'screen.say("sending")\nscreen.warn("slow")\nscreen.write("7\\n")\n'
    with open("/dev/full", "wb") as full:
        found = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True
        )
    assert found.stdout == "7\n"


def test_the_output_of_each_task_begins_a_line() -> None:
    outputs = [TaskOutput(task_id=n, data=b"hello", size_bytes=5) for n in (1, 2)]
    pool = FakePool(AllLogs=an.LogPage(id="", outputs=outputs))
    result = run(pool, "job", "logs", "7", "--all")
    assert result.stdout == "==> task 1 <==\nhello\n==> task 2 <==\nhello"
