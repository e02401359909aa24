"""Flocks that are simulated by compiled code, beside the same ones in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from seeds import due

from kestrel_experiments.flock_simulation.compiled import (
    OF_CORES,
    OF_FLOCKS,
    compiled_copy,
    environment_of,
)

MOVING = ["--pools", "30", "--scale", "0.1", "--failing", "10%", "--joining", "10%"]
WITH_CORES = ["--pools", "10", "--scale", "0.03", "--core", "--reclaim", "5"]


def simulated(options: list[str], variables: Mapping[str, str], directory: Path) -> dict[str, Any]:
    """What came of a flock, without what it took."""
    words = [sys.executable, "-P", "-m", "kestrelctl", "bench", "flock-sim", "--ttl", "1"]
    done = subprocess.run(
        [*words, "-o", "json", *options],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    del run["cpu_seconds"], run["peak_bytes"]
    return run


class Flock(NamedTuple):
    """A flock to simulate.

    Attributes:
        options: of the command that simulates it.
        modules: what is compiled for it.
        least: it has more tasks than this.
    """

    options: list[str]
    modules: tuple[ModuleType, ...]
    least: int


FLOCKS = {
    "models": Flock(MOVING, OF_FLOCKS, 10_000),
    "cores": Flock(WITH_CORES, (*OF_FLOCKS, *OF_CORES), 3_000),
}


@pytest.mark.parametrize("name", [list(FLOCKS)[place] for place in due(2, parts=2)])
def test_compiled_code_comes_to_the_same_figures(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them in turn: compiling takes a minute or two."""
    options, modules, least = FLOCKS[name]
    expected = simulated(options, os.environ, tmp_path)
    monkeypatch.setenv("MYPYC_OPT_LEVEL", "0")  # in a hurry
    monkeypatch.setenv("CFLAGS", "-O0 -g0")  # without it as Python itself was compiled
    with compiled_copy(modules) as copy:
        found = simulated([*options, "--compiled"], environment_of(copy), tmp_path)
    assert found == expected
    assert found["lost"] == 0
    assert found["tasks"] > least
