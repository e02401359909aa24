"""Checkpoints on a real pool: workers are drained and killed, and little is run again."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from daemons import Spawn
from page_desk import Desk
from test_checkpoint_files import COUNTER
from test_inputs import Host, Site, wait_for

pytestmark = pytest.mark.timeout(240)

#: Each step leaves a line in a file that no worker is asked for; it ends when it is told to.
SLOW = COUNTER.replace(
    "    step += 1\n", "    open(sys.argv[2], 'a').write(f'{step + 1}\\n')\n    step += 1\n"
).replace("while step < last:", "while not os.path.exists(sys.argv[2] + '.enough'):")


class Runs:
    """A task that counts, on hosts of a site.

    Args:
        words: of `submit`, for checkpoints.
    """

    def __init__(self, site: Site, words: str) -> None:
        self._site = site
        self._steps = site.desk.directory / "steps"
        script = site.desk.directory / "count.py"
        script.write_text(SLOW)
        place = f"{sys.executable} {script} 0 {self._steps}"
        site.submit(f"{words} --stop-grace 10s -- {place}")

    @property
    def steps(self) -> list[int]:
        return [*map(int, self._steps.read_text().split())] if self._steps.exists() else []

    def enough(self) -> None:
        """Has it end well."""
        Path(f"{self._steps}.enough").touch()

    def task(self) -> dict[str, Any]:
        return self._site.task()

    def checkpoint(self) -> int:
        found = self.task().get("checkpoint")
        return int(found["n"]) if found else 0

    def is_over(self) -> bool:
        return self.task()["state"] == "done"


def host(site: Site, name: str) -> Host:
    return site.host(name, "--share", str(site.desk.directory), "--isolation", "plain")


@pytest.fixture
def site(desk: Desk, spawn: Spawn) -> Site:
    return Site(desk, spawn)


def test_a_task_goes_on_elsewhere_when_its_worker_is_drained_or_killed(site: Site) -> None:
    first = host(site, "h1")
    runs = Runs(site, "--checkpoint state --checkpoint-every 1 --checkpoint-exit 85")
    wait_for(lambda: len(runs.steps) > 20)
    second = host(site, "h2")
    assert runs.task()["worker"].startswith("h1@")
    site.desk.types("kestrelctl worker drain h1")
    wait_for(lambda: str(runs.task()["worker"]).startswith("h2@"))
    wait_for(lambda: runs.checkpoint() > 2)
    before = len(set(runs.steps))
    known = runs.checkpoint()
    wait_for(lambda: runs.checkpoint() > known + 1)  # its files are of later than that
    site.desk.types("kestrelctl worker resume h1")
    second.kill()
    wait_for(lambda: str(runs.task()["worker"]).startswith("h1@"))
    ran = len(runs.steps)
    wait_for(lambda: len(runs.steps) > ran)
    runs.enough()
    assert "done" in site.desk.types("kestrelctl job wait last --timeout 120")[-1]
    steps = runs.steps
    assert sorted(set(steps)) == [*range(1, max(steps) + 1)]
    assert max(Counter(steps).values()) <= 2
    again = [step for step, times in Counter(steps).items() if times > 1]
    # The signal may come between a step and its count.
    assert sum(step < before - 2 for step in again) <= 1, "what was durable is not run again"
    task = runs.task()
    assert (task["failures"], task["losses"]) == (0, 1)
    info = json.loads("\n".join(site.desk.types("kestrelctl job info last -q -o json")))
    assert info["resumed"] == 2
    story = "\n".join(site.desk.types("kestrelctl job story last"))
    assert "to go on from a checkpoint" in story
    assert "went on" in story
    first.process.send_signal(signal.SIGTERM)


def test_without_an_exit_code_a_drained_worker_stores_what_there_is_and_goes_on(
    site: Site, tmp_path: Path
) -> None:
    first = host(site, "h1")
    runs = Runs(site, "--checkpoint state --checkpoint-every 1h")
    wait_for(lambda: len(runs.steps) > 20)
    assert runs.checkpoint() == 0
    first.process.send_signal(signal.SIGTERM)
    wait_for(lambda: runs.checkpoint() == 1)
    assert not runs.is_over()
    host(site, "h2")
    wait_for(lambda: len(runs.steps) > 60)
    first.kill()
    wait_for(lambda: str(runs.task()["worker"]).startswith("h2@"))
    wait_for(lambda: runs.task()["losses"] == 1)
    ran = len(runs.steps)
    wait_for(lambda: len(runs.steps) > ran)
    runs.enough()
    assert "done" in site.desk.types("kestrelctl job wait last --timeout 120")[-1]
    assert runs.steps.count(1) == 1, "it did not begin anew"
    assert runs.task()["losses"] == 1


def test_a_checkpoint_that_the_share_has_lost_is_told(site: Site) -> None:
    first = host(site, "h1")
    runs = Runs(site, "--checkpoint state --checkpoint-every 1 --checkpoint-exit 85")
    wait_for(lambda: runs.checkpoint() >= 1)
    first.kill()  # before its files go: it would store another
    site.lose_files()
    host(site, "h2")
    wait_for(lambda: str(runs.task()["worker"]).startswith("h2@"))
    wait_for(lambda: "began anew" in "\n".join(site.desk.types("kestrelctl job story last")))
    wait_for(lambda: runs.steps.count(1) == 2)
    site.desk.types("kestrelctl job cancel last")
