"""What the end of a command means for its attempt."""

from __future__ import annotations

import pytest

from kestrelctl.core.model.result import Outcome
from kestrelctl.worker.connection.session import _outcome
from kestrelctl.worker.run.executor import Completion


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        ("", Outcome.DONE),
        ("cleanup-failed: exit code 1", Outcome.DONE),
        ("outputs-incomplete: 'a' is no file", Outcome.DONE),
        ("cancelled", Outcome.KILLED),
        ("time-limit", Outcome.FAILED),
        ("no-space: it could not be written", Outcome.UNABLE),
        ("outputs-missing: no file is 'a'", Outcome.FAILED),
        ("outputs-too-large: 20 GB", Outcome.FAILED),
        ("outputs-failed: the share is away", Outcome.FAILED),
        ("stage setup: exit code 3", Outcome.FAILED),
        ("stage out: exit code 3", Outcome.FAILED),
        # Elsewhere the command would run again.
        ("stage out: no-space: it could not be written", Outcome.FAILED),
    ],
)
def test_who_ends_with_status_0_has_succeeded_unless_he_was_asked_to_end(
    reason: str, outcome: int
) -> None:
    assert _outcome(Completion(1, reason=reason, started_at=1.0, exit_code=0), ()) == outcome


def test_an_exit_that_the_job_names_is_a_success_and_no_other() -> None:
    ends = [Completion(1, started_at=1.0, exit_code=code) for code in (0, 3, 4)]
    found = [_outcome(end, ((3, 3),)) for end in ends]
    assert found == [Outcome.FAILED, Outcome.DONE, Outcome.FAILED]
