"""Logs from the pool's file share: whole, a piece at a time, or why they cannot be had."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cli_fake_pool import ENDED_JOB, FakePool, job_with, log_of, run
from click.testing import Result
from msgspec.structs import replace
from store_samples import STORED

from kestrelctl.client.logs import LogReader
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import FileDamaged, FileExpired, KestrelError, NotAllowed, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import AttemptOutput, FollowedLog, TaskOutput

WHOLE = bytes(range(256)) * 20_000  # five pieces


class Share:
    """A file share that has one log, or says why not."""

    def __init__(self) -> None:
        self.why_not: KestrelError | None = None
        self.gets = 0
        self.opened = 0

    async def get(self, stored: StoredFile, target: Path) -> None:
        self.gets += 1
        assert stored == STORED
        if self.why_not is not None:
            raise self.why_not
        target.write_bytes(WHOLE)


class Logs:
    """A pool with a job of two tasks, and its share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.share = Share()
        monkeypatch.setattr("kestrelctl.files.share.FileShare", self._open)
        view = replace(ENDED_JOB, tasks=2)
        outputs = [TaskOutput(task_id=1, more=True), TaskOutput(task_id=2, more=True)]
        self.pool = FakePool(
            ListJobs=an.Jobs(id="", jobs=[view]),
            AllLogs=an.LogPage(id="", outputs=outputs),
            Logs=self._log,
        )
        self.rest = log_of(b"the end", size_bytes=99, skipped_bytes=92, why_missing="w1 is away")

    def _open(self, slots: None = None, *, ca_file: Path | None = None) -> Share:
        self.share.opened += 1
        return self.share

    def _log(self, request: rq.Logs) -> an.Log:
        if request.stored:
            return an.Log(id="", data=b"", size_bytes=len(WHOLE), stored=STORED)
        return self.rest

    def logs(self, *words: str) -> Result:
        return run(self.pool, "job", "logs", "7", *words)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Logs:
    monkeypatch.chdir(tmp_path)
    return Logs(monkeypatch)


def test_a_log_comes_whole_from_the_share(at: Logs) -> None:
    result = at.logs("1")
    assert result.stdout_bytes == WHOLE
    assert (result.exit_code, result.stderr) == (0, "")
    assert at.pool.count(rq.Logs) == 1


def test_those_of_all_tasks_do_and_the_share_is_opened_once(at: Logs) -> None:
    assert at.logs("--to", "out-{n}").exit_code == 0
    assert Path("out-1").read_bytes() == Path("out-2").read_bytes() == WHOLE
    assert at.logs("--all").stdout_bytes == b"\n".join(
        b"==> task %d <==\n" % n + WHOLE for n in (1, 2)
    )
    assert (at.share.gets, at.share.opened) == (4, 2)


@pytest.mark.parametrize(
    "error",
    [FileExpired("it has expired"), FileDamaged("it is damaged"), Unreachable("it is away")],
)
def test_what_the_share_does_not_have_is_asked_of_the_worker(at: Logs, error: KestrelError) -> None:
    at.share.why_not = error
    result = at.logs("1")
    assert result.stdout == "the end"
    assert result.exit_code == 13
    assert f"{error.message}; w1 is away" in result.stderr

    at.rest = log_of(b"all of it")
    result = at.logs("1")
    assert (result.stdout, result.exit_code) == ("all of it", 0)


def test_one_that_may_not_be_read_is_an_error(at: Logs) -> None:
    at.share.why_not = NotAllowed("others could read it")
    assert at.logs("1").exit_code == NotAllowed.exit_status


def test_what_was_cut_off_is_told_though_the_rest_came(at: Logs) -> None:
    at.pool.answers["Logs"] = an.Log(
        id="", data=b"", size_bytes=len(WHOLE), stored=STORED, cut_bytes=5, why_missing="too much"
    )
    result = at.logs("1")
    assert result.stdout_bytes == WHOLE
    assert "5 bytes of the output of task 1 cannot be had" in result.stderr


async def test_little_of_a_log_is_in_memory_at_a_time_and_nothing_stays_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sizes = []
    async for piece in LogReader(Share, lambda: None).stored(STORED):
        sizes.append(len(piece))
        await asyncio.sleep(0)
    assert max(sizes) <= 1 << 20
    assert sum(sizes) == len(WHOLE)
    assert list(tmp_path.iterdir()) == []


def test_job_info_says_who_has_the_rest_of_long_logs() -> None:
    def told(*stored: bool) -> str:
        tasks = [
            an.TaskView(
                index=n, task_id=n, state=TaskState.DONE, worker=f"w{n}@workers.pool/x",
                stdout_bytes=9_000, logs_stored=each,
            )
            for n, each in enumerate(stored)
        ]  # fmt: skip
        pool = FakePool(
            ListTasks=an.Tasks(id="", tasks=tasks), ListJobs=an.Jobs(id="", jobs=[ENDED_JOB])
        )
        return run(pool, "job", "info", "7").stdout

    assert "the rest is in the file share\n" in told(True, True)
    assert "the rest is in the file share and on w1\n" in told(True, False)
    assert "the rest is on w0\n" in told(False)


def test_a_job_says_that_its_logs_are_kept(tmp_path: Path) -> None:
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[job_with(ENDED_JOB, {"keep_logs": True})]))
    assert "logs            kept in the file share\n" in run(pool, "job", "info", "7").stdout


def test_submit_and_job_files_ask_for_it(tmp_path: Path) -> None:
    pool = FakePool()
    run(pool, "submit", "--keep-logs", "--", "ls")
    assert pool.last(rq.SubmitJob).spec.program.keep_logs
    run(pool, "submit", "--", "ls")
    assert not pool.last(rq.SubmitJob).spec.program.keep_logs
    (tmp_path / "a.toml").write_text('command = ["ls"]\nkeep-logs = true\n')
    run(pool, "submit", str(tmp_path / "a.toml"))
    assert pool.last(rq.SubmitJob).spec.program.keep_logs


def test_what_a_worker_that_is_gone_does_not_give_is_followed_from_the_share(at: Logs) -> None:
    """From where it was read: the rest before the end that the manager has."""
    pieces = [
        AttemptOutput(attempt=9, data=WHOLE[:7], more=True),
        AttemptOutput(
            attempt=9, data=WHOLE[-9:], over="exit code 0", skipped_bytes=len(WHOLE) - 16,
            why_missing="w1 is away",
        ),
    ]  # fmt: skip
    answers = iter([*pieces, *pieces])
    at.pool.answers["FollowLogs"] = lambda _: FollowedLog(id="", state="done", piece=next(answers))
    result = at.logs("-f", "1")
    assert result.stdout_bytes == WHOLE
    assert (result.exit_code, result.stderr) == (0, "")

    at.share.why_not = FileExpired("it has expired")
    result = at.logs("-f", "1")
    assert (result.stdout_bytes, result.exit_code) == (WHOLE[:7] + WHOLE[-9:], 13)
    assert "it has expired; w1 is away" in result.stderr
