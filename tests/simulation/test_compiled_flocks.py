"""Flocks that are simulated by compiled code, beside the same ones in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kestrel_experiments.flock_simulation.compiled import (
    OF_CORES,
    OF_FLOCKS,
    compiled_copy,
    environment_of,
)

MOVING = ["--pools", "30", "--scale", "0.1", "--failing", "10%", "--joining", "10%"]
WITH_CORES = ["--pools", "10", "--scale", "0.03", "--core", "--reclaim", "5"]


@pytest.fixture(scope="module")
def compiled() -> Iterator[dict[str, str]]:
    """The variables of a Python that has all of it compiled, in a hurry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYC_OPT_LEVEL", "0")
        with compiled_copy([*OF_FLOCKS, *OF_CORES]) as copy:
            yield environment_of(copy)


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


@pytest.mark.parametrize(
    ("flock", "least"), [(MOVING, 10_000), (WITH_CORES, 3_000)], ids=["models", "cores"]
)
def test_compiled_code_comes_to_the_same_figures(
    flock: list[str], least: int, compiled: dict[str, str], tmp_path: Path
) -> None:
    found = simulated([*flock, "--compiled"], compiled, tmp_path)
    assert found == simulated(flock, os.environ, tmp_path)
    assert found["lost"] == 0
    assert found["tasks"] > least
