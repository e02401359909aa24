"""What docs/aggregates.md shows of a terminal is what a terminal shows."""

from __future__ import annotations

import json
import re
import time

import pytest
from page_desk import Desk, as_far_as_shown, typed_lines

pytestmark = pytest.mark.timeout(180)


def same_for_all_workers(lines: list[str]) -> list[str]:
    """Which of the three workers is the example is chance."""
    return [re.sub(r"\bw[123]\b", "w1", line) for line in lines]


def test_the_page_shows_what_happens(desk: Desk) -> None:
    typed = 0
    for line, shown in typed_lines("aggregates.md"):
        seen, wanted = as_far_as_shown(same_for_all_workers(desk.types(line)), shown)
        assert seen == wanted, line
        typed += 1
    assert typed == 26


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


def test_a_limit_that_nobody_says_is_found(desk: Desk) -> None:
    desk.types("kestrelctl up --workers 1")
    desk.types("kestrelctl worker resize w1 'seats=?:69'")
    (desk.directory / "sit.sh").write_text(
        "for n in 1 2 3; do\n"
        "mkdir seat.$n 2>/dev/null && { sleep 0.5; rmdir seat.$n; exit; }\n"
        "done\n"
        "exit 69\n"
    )
    desk.types("kestrelctl submit --cpus 0.1 --asset seats=1 --array 1-30 --wait -- sh sit.sh")
    [job] = json.loads("\n".join(desk.types("kestrelctl -q job list -o json")))
    assert (job["state"], job["done"], job.get("failed", 0)) == ("done", 30, 0)
    told = desk.types("kestrelctl job story last")
    assert any("no more seats: exit code 69; runs again" in line for line in told)
    [worker] = json.loads("\n".join(desk.types("kestrelctl -q worker list -o json")))
    assert 1 < worker["assets"]["seats"] <= 4
    assert worker["free"]["seats"] == worker["assets"]["seats"]


def at_work(desk: Desk) -> dict[str, int]:
    """How many tasks each worker runs, as it was told and as it says."""
    listed = json.loads("\n".join(desk.types("kestrelctl -q worker list -o json")))
    return {each["worker"].partition("@")[0]: each["running"] for each in listed}
