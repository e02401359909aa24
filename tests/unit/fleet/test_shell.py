"""How a command is run on a host: with nothing to read, and not for longer than we are there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kestrelctl.fleet.shell import Lines, timed_out, whole_command


def start(command: str, timeout_seconds: float | None = None) -> subprocess.Popen[str]:
    line = whole_command(command, as_root=False, timeout_seconds=timeout_seconds)
    return subprocess.Popen(
        line, shell=True, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_output_and_status_are_those_of_the_command() -> None:
    with start('echo "it\'s $0"; echo no >&2; exit 7') as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == ("it's sh\n", "no\n")
        assert process.wait() == 7


def test_a_command_that_wants_to_read_finds_nothing() -> None:
    with start("cat; read -r line; echo $?") as process:
        assert process.stdout is not None
        assert process.stdout.read() == "1\n"


def test_the_command_ends_with_the_connection_and_so_do_its_children() -> None:
    with start("echo started; sleep 300 & sleep 300") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "started\n"
        process.stdin.close()
        assert process.stdout.read() == ""  # nobody holds it any more
        assert process.wait() != 0


def test_the_command_ends_when_its_time_is_up() -> None:
    with start("sleep 300 & sleep 300", timeout_seconds=0.05) as process:
        assert process.stdout is not None
        assert process.stdout.read() == ""
        assert timed_out(process.wait(), 0.06, 0.05)


@pytest.mark.parametrize(
    ("status", "seconds", "timeout_seconds", "expected"),
    [(124, 5.1, 5.0, True), (137, 10.1, 5.0, True), (124, 1.0, 5.0, False), (124, 9.0, None, False),
     (1, 5.1, 5.0, False)],
)  # fmt: skip
def test_a_status_of_its_own_is_no_timeout(
    status: int, seconds: float, timeout_seconds: float | None, expected: bool
) -> None:
    assert timed_out(status, seconds, timeout_seconds) is expected


@pytest.mark.parametrize(("uid", "expected"), [(0, "hi\n"), (1000, "by sudo -n --\nhi\n")])
def test_it_runs_as_root_by_sudo_unless_it_is_root_already(
    tmp_path: Path, uid: int, expected: str
) -> None:
    programs = {"id": f"echo {uid}", "sudo": 'echo "by sudo $1 $2"; shift 2; exec "$@"'}
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    with subprocess.Popen(
        whole_command("echo hi", as_root=True, timeout_seconds=None),
        shell=True, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.read() == expected


def test_lines_come_whole_however_they_are_cut() -> None:
    found: list[str] = []
    lines = Lines(found.append)
    for piece in ("a", "b\nc\n", "\nd"):
        lines.write(piece)
    assert found == ["ab", "c", ""]
    lines.finish()
    assert found == ["ab", "c", "", "d"]
