"""What tasks print is put into the file share when they have ended, and comes whole from there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemons import Spawn
from page_desk import Desk
from test_execution import Machine, until
from test_inputs import Site, wait_for
from test_task_outputs import Share

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.errors import NotAllowed, Unreachable
from kestrelctl.worker.files.log_stage import MOST_AT_ONCE, LogStage
from kestrelctl.worker.run.executor import Completion

pytestmark = pytest.mark.timeout(180)

#: 200,000 bytes to each stream, none of them as the one before.
LOUD = "seq 100000 | head -c 200000; seq 200000 300000 | head -c 200000 >&2"


class Printer(Machine):
    """A machine whose tasks' logs are kept in a share."""

    def __init__(self, tmp_path: Path, **bounds: float) -> None:
        self.share = Share()
        stage = LogStage(self.share, **bounds)
        super().__init__(tmp_path / "work", output_limit_bytes=1 << 20, log_stage=stage)

    async def prints(self, script: str, **more: object) -> Completion:
        return await self.sh(script, keep_logs=True, **more)


@pytest.fixture
async def printer(tmp_path: Path) -> AsyncIterator[Printer]:
    found = Printer(tmp_path)
    yield found
    await found.executor.close()


def is_of(stored: StoredFile | None, data: bytes) -> bool:
    return stored is not None and stored.sha256 == hashlib.sha256(data).hexdigest()


async def test_both_streams_are_stored_of_successes_and_of_failures(printer: Printer) -> None:
    out = b"".join(b"%d\n" % n for n in range(1, 100_001))[:200_000]
    err = b"".join(b"%d\n" % n for n in range(200_000, 300_001))[:200_000]
    for status in (0, 3):
        ended = await printer.prints(f"{LOUD}; exit {status}")
        assert (ended.exit_code, ended.reason) == (status, "")
        assert printer.share.archives[-2:] == [out, err]
        assert is_of(ended.stdout_stored, out)
        assert is_of(ended.stderr_stored, err)
        assert ended.stored_seconds > 0
        assert printer.executor.read_output(ended.number, "stdout", 0, 10) == out[:10]


async def test_only_what_is_longer_than_the_tail_is_stored(printer: Printer) -> None:
    ended = await printer.prints(f"head -c {TAIL_BYTES} /dev/zero; echo short >&2")
    assert (ended.stdout_stored, ended.stderr_stored, ended.stored_seconds) == (None, None, 0.0)
    ended = await printer.prints(f"head -c {TAIL_BYTES} /dev/zero; seq 3000 >&2")
    assert ended.stdout_stored is None
    assert ended.stderr_stored is not None
    assert len(printer.share.archives) == 1


async def test_nothing_is_stored_of_jobs_that_do_not_ask_for_it(printer: Printer) -> None:
    ended = await printer.sh("seq 3000")
    assert (ended.stdout_stored, printer.share.tries) == (None, 0)


async def test_what_is_over_the_limit_is_stored_up_to_it(printer: Printer) -> None:
    ended = await printer.prints("cat /dev/zero")
    assert ended.reason == "output-limit"
    assert ended.stdout_stored is not None
    assert ended.stdout_stored.size_bytes == 1 << 20 < ended.stdout_bytes


@pytest.mark.parametrize("error", [NotAllowed("this account may not"), Unreachable("away")])
async def test_a_share_that_fails_changes_nothing_of_the_end(
    printer: Printer, error: NotAllowed, caplog: pytest.LogCaptureFixture
) -> None:
    printer.share.fails = [error]
    ended = await printer.prints("seq 3000")
    assert (ended.exit_code, ended.reason, ended.stdout_stored) == (0, "", None)
    assert printer.executor.read_output(ended.number, "stdout", 0, 4) == b"1\n2\n"
    assert f"attempt 1: what it printed stays on this worker: {error.message}" in caplog.text


async def test_a_slow_share_holds_no_result_back_for_longer_than_the_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    printer = Printer(tmp_path, longest_seconds=0.05)
    printer.share.slow = True
    waiting = [
        printer.start("/bin/sh", "-c", "seq 3000", keep_logs=True) for _ in range(MOST_AT_ONCE + 3)
    ]
    for number in waiting:  # those that wait for others, too
        ended = await printer.exit_of(number)
        assert (ended.exit_code, ended.stdout_stored) == (0, None)
        assert printer.executor.read_output(number, "stdout", 0, 4) == b"1\n2\n"
    assert "it took longer than 0.05 seconds" in caplog.text
    assert printer.share.under_way == 0
    await printer.executor.close()


async def test_a_share_that_was_away_is_left_alone_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for pause_seconds, tries in ((60.0, 1), (0.0, 2)):
        printer = Printer(tmp_path / str(tries), pause_seconds=pause_seconds)
        printer.share.fails = [Unreachable("away")]
        await printer.prints("seq 3000")
        ended = await printer.prints("seq 3000")
        assert printer.share.tries == tries
        assert (ended.stdout_stored is not None) == (tries == 2)
        assert ended.stored_seconds > 0
        await printer.executor.close()
    assert "attempt 2: what it printed stays on this worker: the file share was" in caplog.text


async def test_a_share_that_never_answers_is_left_alone_too(tmp_path: Path) -> None:
    printer = Printer(tmp_path, longest_seconds=0.05)
    printer.share.slow = True
    for _ in range(3):
        await printer.prints("seq 3000")
    assert printer.share.tries == 1
    await printer.executor.close()


async def test_one_that_is_killed_is_reported_at_once_and_one_that_had_ended_as_it_had(
    printer: Printer,
) -> None:
    running = printer.start("/bin/sh", "-c", "seq 3000; sleep 60", keep_logs=True)
    await until(lambda: printer.executor.read_output(running, "stdout", 0, 1))
    printer.executor.kill(running)
    ended = await printer.exit_of(running)
    assert (ended.reason, printer.share.tries) == ("cancelled", 0)

    printer.share.slow = True
    storing = printer.start("/bin/sh", "-c", "seq 3000; exit 4", keep_logs=True)
    await until(lambda: printer.share.under_way)
    assert printer.executor.used([storing]) == {}
    assert printer.executor.kill(storing)
    ended = await printer.exit_of(storing)
    assert (ended.exit_code, ended.reason, ended.stdout_stored) == (4, "", None)


async def test_a_worker_that_stops_meanwhile_leaves_nothing_under_way(printer: Printer) -> None:
    printer.share.slow = True
    printer.start("/bin/sh", "-c", "seq 3000", keep_logs=True)
    await until(lambda: printer.share.under_way)
    await asyncio.wait_for(printer.executor.close(), 10)
    assert (printer.share.under_way, printer.exits) == (0, {})


async def test_outputs_and_logs_are_stored_both(printer: Printer) -> None:
    ended = await printer.prints("seq 3000", outputs=("*",))
    assert ended.reason.startswith("outputs-failed: ")  # this machine stores none
    assert ended.stdout_stored is not None


# ---- in a pool


@pytest.fixture
def site(desk: Desk, spawn: Spawn) -> Site:
    return Site(desk, spawn)


def wrote(site: Site, words: str) -> bytes:
    """What `job logs` writes into a file, byte for byte."""
    target = site.desk.directory / "wrote"
    site.desk.types(f"kestrelctl job logs {words} >{target}")
    return target.read_bytes()


def test_what_a_task_printed_is_there_when_its_worker_is_gone_for_good(site: Site) -> None:
    host = site.host("h1")
    noise = os.urandom(200_000)
    (site.desk.directory / "noise").write_bytes(noise)
    script = "cat noise; tac noise >&2; [ $KESTREL_TASK_ID != 2 ]"
    site.submit(
        f"--keep-logs --input noise --array 1-2 --wait --stderr here-{{n}} -- sh -c '{script}'"
    )
    host.process.terminate()
    host.process.wait(60)
    shutil.rmtree(host.inputs.parent)
    listed = "kestrelctl worker list -q -o json"
    wait_for(lambda: '"offline"' in "\n".join(site.desk.types(listed)))

    backwards = (site.desk.directory / "here-1").read_bytes()
    assert len(backwards) == len(noise)
    for task in ("1", "2"):  # of which the second has failed
        assert wrote(site, f"1 {task}") == noise
        assert wrote(site, f"1 {task} --stderr") == backwards
    site.desk.types("kestrelctl job logs 1 --to all-{n}")
    assert (site.desk.directory / "all-2").read_bytes() == noise
    shown = "\n".join(site.desk.types("kestrelctl job info 1"))
    assert "kept in the file share" in shown
    assert "the rest is in the file share" in shown

    site.lose_files()
    lines = site.desk.types("kestrelctl job logs 1 1 >tail; echo status $?")
    assert "status 13" in lines
    assert "does not have the file any more" in "\n".join(lines)
    assert (site.desk.directory / "tail").read_bytes() == noise[-TAIL_BYTES:]
