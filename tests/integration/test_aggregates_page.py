"""What docs/aggregates.md shows of a terminal is what a terminal shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "aggregates.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.timeout(180)


class Desk:
    """A user who types what the page shows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }
        self.env.pop("KESTREL_POOL", None)

    def types(self, line: str) -> list[str]:
        found = subprocess.run(
            ["bash", "-c", line], cwd=self.directory, env=self.env, text=True, timeout=100,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        lines = found.stdout.splitlines()
        return [line for line in lines if not line.startswith("next: ")]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    found = Desk(tmp_path)
    yield found
    found.types("kestrelctl down --delete --yes")


def same_for_all_workers(lines: list[str]) -> list[str]:
    """Which of the three workers is the example is chance."""
    return [re.sub(r"\bw[123]\b", "w1", line) for line in lines]


def test_the_page_shows_what_happens(desk: Desk) -> None:
    typed = 0
    for block in BLOCKS:
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *shown = entry.splitlines()
            seen = same_for_all_workers(desk.types(line))
            if "..." in shown:
                shown = shown[: shown.index("...")]
                seen = seen[: len(shown)]
            assert seen == shown, line
            typed += 1
    assert typed == 21


def test_three_policies_side_by_side_in_a_pool(desk: Desk) -> None:
    desk.types("kestrelctl up --workers 3")
    for worker, policy in {
        "w1": "ConsumptionCpus = 0.25 * TARGET.RequestCpus",
        "w2": "ConsumptionCpus = 0\nConsumptionMemory = Memory / 2\nSlotWeight = Memory",
        "w3": "ConsumptionCpus = Cpus",
    }.items():
        (desk.directory / worker).write_text(policy)
        wanted = f"""--workers 'regexp("^{worker}@", Name)'"""
        [said] = desk.types(f"kestrelctl pool policy set for-{worker} {wanted} {worker}")
        assert said == f"policy for-{worker} is in force for 1 worker"
    desk.types("kestrelctl submit --array 1-40 -- sleep 60")
    deadline = time.monotonic() + 60
    while (running := at_work(desk)) != {"w1": 4, "w2": 2, "w3": 1}:
        assert time.monotonic() < deadline, running
        time.sleep(0.1)
    desk.types("kestrelctl job cancel last")


def at_work(desk: Desk) -> dict[str, int]:
    """How many tasks each worker runs, as it was told and as it says."""
    listed = json.loads("\n".join(desk.types("kestrelctl -q worker list -o json")))
    return {each["worker"].partition("@")[0]: each["running"] for each in listed}
