"""A batch system's own programs are run, and whatever they do, a property costs its value alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_execution import alive, until

from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.worker.plugins import batch_queue
from kestrelctl.worker.plugins.built_in import BUILT_IN
from kestrelctl.worker.plugins.plugin_run import BuiltInRun


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is searched before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def squeue(directory: Path, text: str) -> None:
    place = directory / "squeue"
    place.write_text(f"#!{sys.executable}\nimport os, subprocess, sys, time\n{text}\n")
    place.chmod(0o755)


async def read(words: str) -> PropertyReading:
    return await BuiltInRun(BUILT_IN["batch"]).run(words.split(), "int", 20.0, 7.0)


async def test_the_queue_is_counted(programs: Path) -> None:
    squeue(programs, "print('PENDING;1;debug;mpi;Resources\\nRUNNING;1;debug;mpi;None')")
    assert await read("slurm pending feature=mpi") == PropertyReading(7.0, 1)
    assert await read("slurm wanted feature=mpi") == PropertyReading(7.0, 2)


async def test_it_is_asked_in_one_language_for_all_tasks_of_arrays(programs: Path) -> None:
    squeue(programs, "assert os.environ['LC_ALL'] == 'C' and '--array' in sys.argv")
    assert await read("slurm pending") == PropertyReading(7.0, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "print('PENDING;1;debug;mpi;Resources', flush=True); sys.exit('squeue: error: away')",
            "squeue failed with status 1: squeue: error: away",
        ),
        ("sys.exit(3)", "squeue failed with status 3"),
        ("print('slurm')", "squeue says what cannot be read: not 5 fields: slurm"),
        ("print('x' * 3000)", "squeue prints more than 1,000 bytes"),
        ("time.sleep(600)", "squeue failed with status -9"),
        ("subprocess.run(['sleep', '60'])", "squeue failed with status -9"),
    ],
)
async def test_one_that_fails_has_not_said_that_nothing_waits(
    programs: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(batch_queue, "MOST_PRINTED_BYTES", 1_000)
    monkeypatch.setattr(batch_queue, "LONGEST_SECONDS", 1.0)
    squeue(programs, text)
    told = await read("slurm pending")
    assert (told.value, told.missing) == (None, why)


async def test_what_a_program_has_started_ends_with_it(programs: Path) -> None:
    squeue(
        programs,
        "subprocess.Popen(['sleep', '61.375'], stdout=subprocess.DEVNULL)",
    )
    assert await read("slurm pending") == PropertyReading(7.0, 0)
    await until(lambda: alive("61.375") == [])


async def test_what_cannot_be_asked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (await read("slurm pending")).missing == "squeue is not installed"
    assert (await read("slurm ponding")).missing.startswith("'ponding' is not one of pending")
