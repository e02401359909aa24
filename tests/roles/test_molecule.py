"""Each role, and a whole pool, on hosts of their own: the scenarios under tests/molecule.

They are played from the beginning of the run on; here is waited for them.
"""

from __future__ import annotations

import pytest
from scenarios import HANGS_SECONDS, NAMES, Scenarios

pytestmark = [pytest.mark.lab, pytest.mark.timeout(len(NAMES) * HANGS_SECONDS)]


@pytest.mark.parametrize("scenario", NAMES)
def test_scenario(scenario: str, scenarios: Scenarios) -> None:
    played = scenarios.played[scenario].result()
    assert played.status is not None, f"it hangs:\n{played.end}"
    assert played.status == 0, played.end
