"""Checkpoints of real processes: stored while they run and when they stop, and found again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import rungs
from test_execution import Machine, until
from test_task_outputs import Share

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.program import Program
from kestrelctl.errors import FileDamaged, FileExpired, KestrelError, NotAllowed, Unreachable
from kestrelctl.files.archive import unpack
from kestrelctl.worker.files.checkpoint_fetch import CheckpointFetch
from kestrelctl.worker.files.checkpoint_order import CheckpointOrder
from kestrelctl.worker.files.checkpoints import Checkpoints
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.run.executor import CommandSpec, Completion
from kestrelctl.worker.run.process_executor import ProcessExecutor

#: Counts up; its state is written to another name and renamed, and with SIGTERM it goes on later.
COUNTER = """
import os, signal, sys, time
last = int(sys.argv[1])
step = int(open("state").read()) if os.path.exists("state") else 0
def save():
    with open("state.new", "w") as file:
        file.write(str(step))
    os.rename("state.new", "state")
def leave(*_):
    save()
    sys.exit(85)
signal.signal(signal.SIGTERM, leave)
print("begins at", step, os.environ.get("KESTREL_CHECKPOINT"), flush=True)
while step < last:
    time.sleep(0.02)
    step += 1
    save()
"""


class Both(Share):
    """A file share that gives back what it has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: list[KestrelError] = []

    async def get(self, stored: StoredFile, target: Path) -> None:
        if self.lost:
            raise self.lost.pop(0)
        target.write_bytes(self.archives[int(stored.pieces[0].url.rpartition("/")[2])])

    async def put(self, path: Path) -> StoredFile:
        stored = await super().put(path)
        [piece] = stored.pieces
        url = f"https://share/{len(self.archives) - 1}"
        return StoredFile(
            sha256=stored.sha256,
            size_bytes=stored.size_bytes,
            pieces=(type(piece)(sha256=piece.sha256, size_bytes=piece.size_bytes, url=url),),
        )


class Bench(Machine):
    """A worker's executor with checkpoints, and what it tells of them."""

    def __init__(self, tmp_path: Path, rung: str) -> None:
        self.share = Both()
        self.told: list[tuple[MadeCheckpoint | None, str]] = []
        self.paused_seconds = 0.0
        self.directory, self.home = tmp_path / "work", tmp_path / "home"
        self.rung = rung
        self.exits: dict[int, Completion] = {}
        self._changed = asyncio.Event()
        self._number = 0
        share, now = self.share, lambda: self.paused_seconds
        stage = self.stage = OutputStage(
            tmp_path / "outgoing", share, is_online=lambda: True, now=now, random=Random(1)
        )
        self.executor = ProcessExecutor(
            self.directory,
            self._on_completion,
            rung=rungs.make_rung(rung, self.directory, shares=[tmp_path]),
            output_stage=stage,
            checkpoints=lambda: Checkpoints(
                stage,
                CheckpointFetch(
                    self.directory / "checkpoints",
                    share.get,
                    is_online=lambda: True,
                    now=now,
                    sleep=self._sleep,
                    random=Random(1),
                ),
            ),
        )

    async def _sleep(self, seconds: float) -> None:
        self.paused_seconds += seconds

    def counts(
        self,
        last: int = 10_000,
        *,
        given: MadeCheckpoint | None = None,
        every_seconds: float = 3600.0,
        exit_code: int | None = 85,
        script: str = COUNTER,
        globs: tuple[str, ...] = ("state",),
        cleanup: tuple[str, ...] = (),
        output_to: str = "",
        stop_grace_seconds: float = 2.0,
    ) -> int:
        self._number += 1
        order = CheckpointOrder(
            globs, every_seconds, exit_code, given, lambda *told: self.told.append(told)
        )
        self.executor.start(
            CommandSpec(
                self._number,
                Program(
                    argv=(sys.executable, "-c", script, str(last)),
                    cleanup=cleanup,
                    stop_grace_seconds=stop_grace_seconds,
                    outputs=("state",) if output_to else (),
                    output_to=output_to,
                ),
                {"PATH": os.environ["PATH"]},
                checkpoints=order,
            )
        )
        return self._number

    def scratch(self) -> list[Path]:
        return [path for path in self.directory.glob("sandboxes/*/scratch/*") if path.is_file()]

    async def has_state(self) -> None:
        """Waits until the program has written its state: an empty file is only begun."""
        await until(
            lambda: any(path.name == "state" and path.stat().st_size for path in self.scratch())
        )

    def step_of(self, made: MadeCheckpoint | None) -> int:
        assert made is not None
        archive = self.home.with_suffix(".tar")
        archive.write_bytes(self.share.archives[int(made.stored.pieces[0].url.rpartition("/")[2])])
        place = self.home / made.stored.sha256
        unpack(archive, place, most_bytes=1 << 30)
        return int((place / "state").read_text())


@pytest.fixture(params=rungs.available())
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    found = Bench(tmp_path, request.param)
    yield found
    await found.executor.close()
    assert os.listdir(tmp_path / "outgoing") == []
    assert os.listdir(found.directory / "checkpoints") == ["trash"]


async def stopped(bench: Bench, number: int) -> Completion:
    await bench.has_state()
    bench.executor.take_checkpoint(number, stop=True)
    return await bench.exit_of(number)


async def test_a_checkpoint_goes_to_the_share_wherever_results_go(bench: Bench) -> None:
    ended = await stopped(bench, bench.counts(output_to="file:///shared/ada@pool/7"))
    assert (ended.exit_code, ended.reason, ended.output_files) == (85, "moved", 0)
    assert bench.step_of(ended.checkpoint) > 0


async def test_a_program_that_is_asked_to_stop_goes_on_where_it_was(bench: Bench) -> None:
    first = await stopped(bench, bench.counts())
    assert (first.exit_code, first.reason) == (85, "moved")
    assert first.checkpoint is not None
    assert first.checkpoint.n == 1
    step = bench.step_of(first.checkpoint)
    assert step > 0
    second = await bench.exit_of(bench.counts(step + 3, given=first.checkpoint))
    assert (second.exit_code, second.reason, second.checkpoint) == (0, "", None)
    assert second.stdout == f"begins at {step} 1\n".encode()


async def test_an_exit_with_the_agreed_code_goes_on_later(bench: Bench) -> None:
    script = "open('state', 'w').write('7'); raise SystemExit(85)"
    ended = await bench.exit_of(bench.counts(script=script))
    assert (ended.exit_code, ended.reason) == (85, "")
    assert bench.step_of(ended.checkpoint) == 7


async def test_the_end_by_the_stop_signal_goes_on_elsewhere_too(bench: Bench) -> None:
    script = "import time; open('state', 'w').write('7'); time.sleep(60)"
    ended = await stopped(bench, bench.counts(script=script))
    assert (ended.signal, ended.reason) == (signal.SIGTERM, "moved")
    assert bench.step_of(ended.checkpoint) == 7


#: Writes its state once more when it is asked to end, and takes a moment for that.
SAVER = """
import signal, sys, time
def save(*_):
    time.sleep(0.5)
    open("state", "w").write("9")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open("state", "w").write("7")
while True:  # a long sleep that begins just after the signal came would not be interrupted
    time.sleep(0.05)
"""


async def test_a_program_below_one_that_ends_at_once_saves_its_state_in_the_grace(
    bench: Bench,
) -> None:
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SAVER!r}])"
    ended = await stopped(bench, bench.counts(script=script, stop_grace_seconds=60.0))
    assert (ended.signal, ended.reason) == (signal.SIGTERM, "moved")
    assert bench.step_of(ended.checkpoint) == 9


async def test_another_end_after_that_leaves_what_was_stored_before(bench: Bench) -> None:
    script = COUNTER.replace("sys.exit(85)", "sys.exit(3)")
    ended = await stopped(bench, bench.counts(script=script))
    assert (ended.exit_code, ended.reason, ended.checkpoint) == (3, "moved", None)
    assert bench.share.archives == []


async def test_a_program_that_a_user_ends_leaves_nothing(bench: Bench) -> None:
    number = bench.counts()
    await bench.has_state()
    bench.executor.kill(number)
    ended = await bench.exit_of(number)
    assert (ended.exit_code, ended.reason, ended.checkpoint) == (85, "cancelled", None)


async def test_a_program_that_goes_on_from_nothing_has_failed(bench: Bench) -> None:
    ended = await bench.exit_of(bench.counts(script="raise SystemExit(85)"))
    assert ended.reason == "checkpoint-missing: no file is 'state'"
    assert (ended.exit_code, ended.checkpoint) == (85, None)


async def test_a_program_whose_files_cannot_be_stored_has_failed(bench: Bench) -> None:
    script = "open('state', 'w').write('7'); raise SystemExit(85)"
    bench.share.fails = [NotAllowed("this account stores nothing")]
    ended = await bench.exit_of(bench.counts(script=script))
    assert ended.reason == "checkpoint-failed: this account stores nothing"


async def test_while_it_runs_its_files_are_stored_from_time_to_time(bench: Bench) -> None:
    number = bench.counts(every_seconds=0.05)
    await until(lambda: len(bench.told) >= 3)
    made = [each for each, _ in bench.told]
    assert [each.n for each in made if each is not None] == [*range(1, len(made) + 1)]
    steps = [bench.step_of(each) for each in made]
    assert steps == sorted(set(steps))
    bench.executor.kill(number)
    await bench.exit_of(number)


async def test_what_has_not_changed_is_not_sent_again(bench: Bench) -> None:
    script = (
        "import os, time; open('new', 'w').write('7'); os.rename('new', 'state'); time.sleep(60)"
    )
    number = bench.counts(script=script, every_seconds=0.01)
    await until(lambda: bench.told)
    looked = 0

    async def look(*words: object) -> object:
        nonlocal looked
        looked += 1
        return await real(*words)  # type: ignore[arg-type]

    real = bench.stage.look
    bench.stage.look = look  # type: ignore[method-assign, assignment]
    await until(lambda: looked > 5)
    assert (len(bench.told), bench.share.tries) == (1, 1)
    bench.executor.kill(number)
    await bench.exit_of(number)


async def test_files_that_cannot_be_stored_now_do_not_disturb_it(bench: Bench) -> None:
    bench.share.fails = [FileExpired("not now"), FileExpired("nor now")]
    number = bench.counts(40, every_seconds=0.05)
    ended = await bench.exit_of(number)
    assert (ended.exit_code, ended.reason) == (0, "")
    assert bench.share.fails == []
    assert bench.told, "the next time is tried"


async def test_at_a_drain_they_are_stored_at_once_and_the_program_goes_on(bench: Bench) -> None:
    number = bench.counts(exit_code=None)
    await bench.has_state()
    bench.executor.take_checkpoint(number, stop=False)
    await until(lambda: bench.told)
    assert number not in bench.exits
    bench.executor.kill(number)
    await bench.exit_of(number)


@pytest.mark.parametrize("error", [FileExpired("gone"), FileDamaged("another")])
async def test_a_checkpoint_that_is_lost_or_damaged_has_it_begin_anew(
    bench: Bench, error: KestrelError
) -> None:
    first = await stopped(bench, bench.counts())
    bench.share.lost = [error]
    second = await bench.exit_of(bench.counts(2, given=first.checkpoint))
    assert second.stdout == b"begins at 0 None\n"
    assert bench.told == [(None, f"checkpoint 1: {error.message}")]


async def test_a_share_that_is_away_is_waited_for(bench: Bench) -> None:
    first = await stopped(bench, bench.counts())
    bench.share.lost = [Unreachable("away")] * 3
    second = await bench.exit_of(
        bench.counts(bench.step_of(first.checkpoint), given=first.checkpoint)
    )
    assert second.exit_code == 0
    assert not second.stdout.startswith(b"begins at 0")
    assert bench.paused_seconds > 0


async def test_but_not_for_ever(bench: Bench) -> None:
    first = await stopped(bench, bench.counts())
    bench.share.lost = [Unreachable("away")] * 1000
    ended = await bench.exit_of(bench.counts(given=first.checkpoint))
    assert ended.reason == "checkpoint-failed: it cannot be fetched: away"
    assert ended.exit_code is None


async def test_what_it_finds_are_files_of_its_own(bench: Bench) -> None:
    first = await stopped(bench, bench.counts())
    script = "import os; print(os.path.islink('state'), os.stat('state').st_nlink); " + (
        "open('state', 'a').write('0'); os.unlink('state')"
    )
    ended = await bench.exit_of(bench.counts(given=first.checkpoint, script=script))
    assert (ended.exit_code, ended.stdout) == (0, b"False 1\n")
    third = await bench.exit_of(bench.counts(1, given=first.checkpoint))
    assert third.exit_code == 0


async def test_the_next_task_finds_nothing_of_it(bench: Bench) -> None:
    first = await stopped(bench, bench.counts())
    await bench.exit_of(bench.counts(1, given=first.checkpoint))
    assert (await bench.sh("ls -A")).stdout == b""


async def test_a_program_that_cannot_be_started_leaves_no_checkpoint_behind(bench: Bench) -> None:
    first = await stopped(bench, bench.counts())
    order = CheckpointOrder(("state",), 3600.0, 85, first.checkpoint, lambda *_: None)
    ended = await bench.exit_of(bench.start("/nowhere", checkpoints=order))
    assert ended.reason.startswith("cannot-start")
    assert (await bench.sh("ls -A")).stdout == b""


async def test_it_can_be_cancelled_or_moved_while_its_checkpoint_comes(bench: Bench) -> None:
    first = await stopped(bench, bench.counts())
    for move in (False, True):
        bench.share.lost = [Unreachable("away")] * 10
        number = bench.counts(given=first.checkpoint)
        if move:
            bench.executor.take_checkpoint(number, stop=True)
        else:
            bench.executor.kill(number)
        ended = await bench.exit_of(number)
        assert ended.reason == ("moved" if move else "cancelled")
        assert ended.checkpoint is None


async def test_the_program_that_the_documents_show_goes_on_where_it_was(bench: Bench) -> None:
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
    [shown] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    quick = shown.replace("0.1)", "0.01)")
    first = await stopped(bench, bench.counts(script=quick))
    assert first.exit_code == 85
    step = bench.step_of(first.checkpoint)
    soon = quick.replace("1000", str(step + 2))
    ended = await bench.exit_of(bench.counts(script=soon, given=first.checkpoint))
    assert ended.stdout == f"{step + 2} steps, the last ones from checkpoint 1\n".encode()


async def test_what_the_cleanup_removes_is_not_stored(bench: Bench) -> None:
    cleanup = ("/bin/sh", "-c", "echo 99 >state")
    ended = await stopped(bench, bench.counts(cleanup=cleanup))
    assert bench.step_of(ended.checkpoint) == 99
