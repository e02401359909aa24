"""Outputs that workers on this machine keep are read from their files, not from messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_fake_pool import CONTEXT, ENDED_JOB, FakePool, FakeShare, job_with, run
from click.testing import Result
from msgspec.structs import replace

from kestrelctl.client.blocking import Client
from kestrelctl.client.logs import open_kept
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import AttemptOutput, FollowedLog, TaskOutput

WHOLE = b"".join(b"line %d\n" % number for number in range(100_000))
PIECE_BYTES = 65_536
ATTEMPT = 9
#: Where a message has to bring a piece: all offsets, or only the first and the last.
ALL = list(range(0, len(WHOLE), PIECE_BYTES))
ENDS = [0, len(WHOLE) - PIECE_BYTES]


class Here:
    """A pool with a job of one task, whose worker keeps the output in a file here.

    Attributes:
        file: the output.
        directory: that of the pool; None as if it were on another machine.
        asked: the offset of each piece that a message brought.
    """

    def __init__(self, tmp_path: Path) -> None:
        self.file = tmp_path / f"worker-1/tasks/outputs/{ATTEMPT}.stdout"
        self.file.parent.mkdir(parents=True)
        self.file.write_bytes(WHOLE)
        self.directory: Path | None = tmp_path
        self.asked: list[int] = []
        self.pool = FakePool(
            ListJobs=an.Jobs(id="", jobs=[job_with(ENDED_JOB, {})]),
            Logs=self._piece,
            AllLogs=an.LogPage(id="", outputs=[TaskOutput(task_id=1, more=True)]),
            FollowLogs=self._followed,
        )

    def _piece(self, request: rq.Logs) -> an.Log:
        self.asked.append(request.offset)
        end = request.offset + PIECE_BYTES
        return an.Log(
            id="",
            data=WHOLE[request.offset : end],
            size_bytes=min(len(WHOLE), end + 1),
            next_offset=end if end < len(WHOLE) else None,
            job_id=7,
            task_id=1,
            attempt=ATTEMPT,
        )

    def _followed(self, request: rq.FollowLogs) -> FollowedLog:
        if request.besides:
            return FollowedLog(id="", state="done")
        self.asked.append(request.offset)
        end = request.offset + PIECE_BYTES
        piece = AttemptOutput(
            attempt=ATTEMPT,
            data=WHOLE[request.offset : end],
            more=end < len(WHOLE),
            over="exit code 0",
        )
        return FollowedLog(id="", state="done", piece=piece)

    def logs(self, *words: str) -> Result:
        context = replace(CONTEXT, directory=self.directory)
        return run(self.pool, "job", "logs", "7", *words, context=context)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "pool")


@pytest.mark.parametrize("words", [["1"], ["-f", "1"]])
def test_messages_bring_the_beginning_and_the_end(here: Here, words: list[str]) -> None:
    """The beginning shows that it is the same output; with the end comes whether all is there."""
    result = here.logs(*words)
    assert result.stdout_bytes == WHOLE
    assert (result.exit_code, result.stderr, here.asked) == (0, "", ENDS)


def test_so_it_is_with_those_of_all_tasks_and_from_python(here: Here, tmp_path: Path) -> None:
    assert here.logs("--to", f"{tmp_path}/{{n}}").exit_code == 0
    assert (tmp_path / "1").read_bytes() == WHOLE
    assert here.asked == ENDS

    with Client(
        opens=here.pool.open,
        finds=lambda _: replace(CONTEXT, directory=here.directory),
        opens_share=lambda _connection, _context: FakeShare(),
    ) as client:
        assert client.job(7).logs(1) == WHOLE
    assert here.asked == ENDS * 2


@pytest.mark.parametrize("words", [["1"], ["-f", "1"]])
def test_a_pool_elsewhere_sends_all_of_it(here: Here, words: list[str]) -> None:
    here.directory = None
    assert here.logs(*words).stdout_bytes == WHOLE
    assert here.asked == ALL


def link(file: Path) -> None:
    file.rename(file.parent / "elsewhere")
    file.symlink_to("elsewhere")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def another(file: Path) -> None:
    file.write_bytes(b"x" + WHOLE[1:])


@pytest.mark.parametrize("put", [Path.unlink, link, fifo, directory, another])
@pytest.mark.timeout(20)
def test_what_is_not_the_file_of_this_output_is_not_read(
    here: Here, put: Callable[[Path], None]
) -> None:
    """A task may put anything into its place."""
    put(here.file)
    result = here.logs("1")
    assert result.stdout_bytes == WHOLE
    assert (result.exit_code, result.stderr, here.asked) == (0, "", ALL)


@pytest.mark.timeout(5)
def test_a_fifo_keeps_nobody_waiting(here: Here) -> None:
    assert here.directory is not None
    fifo(here.file)
    assert open_kept(here.directory, here.file.name, WHOLE[:PIECE_BYTES]) is None


def test_after_a_file_that_ends_early_the_pool_has_the_rest(here: Here) -> None:
    os.truncate(here.file, 3 * PIECE_BYTES)
    assert here.logs("1").stdout_bytes == WHOLE
    assert here.asked == [0, *ALL[2:]]
