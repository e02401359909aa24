"""Assets of which nobody knows how much there is: what the pool thinks comes close to the truth.

That it does is held by the audit of these worlds (`kestrel_worlds.outline_audit`): each
estimate reaches what there is, stays between half of it and two units more, and no refusal counts
against a task.
"""

from __future__ import annotations

import pytest
from seeds import due

import kestrel_worlds


@pytest.mark.parametrize("seed", due(16, parts=4))
def test_an_estimate_comes_close_to_what_there_is_and_stays_there(seed: int) -> None:
    world = kestrel_worlds.calm(seed)
    report = kestrel_worlds.run(seed, world)
    report.raise_problems()
    tasks = world.submissions[0].spec.count
    assert report.counts.done == tasks
    assert report.executions > tasks, "nothing was refused"
