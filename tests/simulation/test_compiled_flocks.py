"""A flock that is simulated by compiled code, beside the same one in Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: A compiler has to run, beside hosts that are being set up.
pytestmark = pytest.mark.timeout(400)

FLOCK = ["bench", "flock-sim", "--pools", "30", "--scale", "0.1", "--ttl", "1", "-o", "json"]
MOVING = ["--failing", "10%", "--joining", "10%"]


def simulated(*options: str, directory: Path) -> dict[str, Any]:
    """What came of a flock, without what it took."""
    words = [str(Path(sys.executable).parent / "kestrelctl"), *FLOCK, *MOVING, *options]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    del run["cpu_seconds"], run["peak_bytes"]
    return run


def test_compiled_code_comes_to_the_same_figures(tmp_path: Path) -> None:
    compiled = simulated("--compiled", directory=tmp_path)
    assert compiled == simulated(directory=tmp_path)
    assert compiled["lost"] == 0
    assert compiled["tasks"] > 10_000
