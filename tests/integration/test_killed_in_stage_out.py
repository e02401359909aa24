"""The process of a worker is killed while a stage-out runs: the next one does that, and no more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

WORKER = """
import asyncio, os, sys
from kestrelctl.worker.keeper import run_kept

def main():
    from pathlib import Path
    from test_computed_attempts import held
    from kestrelctl.core.model.job.program import Program
    from kestrelctl.core.model.job.stage import Stage
    from kestrelctl.worker.run.executor import CommandSpec
    from kestrelctl.worker.run.process_executor import ProcessExecutor

    place = Path(sys.argv[1])
    out = f"echo out >>{place}/notes; until test -e {place}/gate; do sleep 0.01; done; cat result"
    run = f"echo run >>{place}/notes; echo computed; echo 42 >result"
    command = CommandSpec(
        7,
        Program(
            argv=("/bin/sh", "-c", run),
            stages=(Stage(name="out", argv=("/bin/sh", "-c", out)),),
        ),
        {"PATH": os.environ["PATH"]},
        held=held(),
    )

    async def work():
        ended = asyncio.get_running_loop().create_future()
        executor = ProcessExecutor(place / "tasks", ended.set_result)
        executor.start(*executor.left() or [command])
        end = await ended
        print([end.exit_code, end.reason, end.stdout, [run.name for run in end.stages]])
        await executor.close()
        return 0

    return asyncio.run(work())

sys.exit(run_kept(main))
"""


def until(condition: Callable[[], object]) -> None:
    for _ in range(4000):
        if condition():
            return
        time.sleep(0.005)
    raise TimeoutError(condition)


class Runs:
    """A worker's processes, one after another."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.started: list[subprocess.Popen[str]] = []

    def begin(self) -> subprocess.Popen[str]:
        here = str(Path(__file__).parent)
        self.started.append(
            subprocess.Popen(
                [sys.executable, "-c", WORKER, str(self._place)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": here},
            )
        )
        return self.started[-1]

    def noted(self) -> list[str]:
        notes = self._place / "notes"
        return notes.read_text().split() if notes.exists() else []


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(tmp_path)
    yield runs
    for popen in runs.started:
        popen.kill()
        popen.communicate()


@pytest.mark.parametrize("blows", [1, 3])
def test_the_command_runs_once_however_often_the_worker_dies(
    runs: Runs, tmp_path: Path, blows: int
) -> None:
    for blow in range(blows):
        keeper = runs.begin()
        until(lambda blow=blow: runs.noted().count("out") == blow + 1)
        [worker] = psutil.Process(keeper.pid).children()
        worker.kill()
        assert keeper.wait(20) == 128 + signal.SIGKILL
    (tmp_path / "gate").touch()
    said, _ = runs.begin().communicate(timeout=20)
    assert said == "[0, '', b'computed\\n42\\n', ['run', 'out']]\n"
    assert runs.noted() == ["run", *["out"] * (blows + 1)]
