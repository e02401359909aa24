"""Several jobs, the last one and jobs by their state, typed at a real pool."""

from __future__ import annotations

import json

import pytest
from page_desk import Desk


@pytest.mark.timeout(240)
def test_what_hands_type_about_jobs_works_or_is_answered_with_the_spelling(desk: Desk) -> None:
    desk.types("kestrelctl up")
    for word in ("one", "two", "three"):
        desk.types(f"kestrelctl submit -- echo {word}")
    status, seen = desk.pastes("kestrelctl job wait 1-2 3 all")
    assert status == 0, seen
    assert desk.types("kestrelctl job logs") == ["job 3, your last one", "three"]
    assert desk.types("kestrelctl job tasks 2 --failed -qo quiet") == []

    desk.types("kestrelctl submit --hold -- true")
    desk.types("kestrelctl submit -- sleep 600")
    running = "kestrelctl job list --state running -qo quiet"
    desk.types(f"until {running} | grep -q 5; do sleep 0.2; done")
    assert desk.types("kestrelctl job list --state held -qo quiet") == ["4"]
    assert desk.types(running) == ["5"]
    assert desk.types("kestrelctl job list --state done --state held -qo quiet") == list("1234")

    owner = json.loads("\n".join(desk.types("kestrelctl job info 3 -o json")))["owner"]
    name = owner.partition("@")[0]
    history = f"kestrelctl job history --owner {name} --since 2020-01-01 -qo quiet"
    assert desk.types(history) == ["1", "2", "3"]

    assert desk.types("kestrelctl scancel 4 5")[-1] == "hint: kestrelctl job cancel 4 5"
    assert desk.types("kestrelctl job cancel 4 5") == ["cancelled jobs 4, 5 (2 tasks)"]
    desk.types("kestrelctl job wait 4 last")
    assert desk.types("kestrelctl job forget 1-3 4 last") == ["forgot jobs 1, 2, 3, 4, 5"]
