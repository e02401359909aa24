"""Each role, and a whole pool, on hosts of their own: the scenarios under tests/molecule."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
SCENARIOS = sorted(file.parent.name for file in CHECKOUT.glob("tests/molecule/*/molecule.yml"))

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str) -> None:
    played = subprocess.run(
        [CHECKOUT / "kestrel", "molecule", "test", "--scenario-name", scenario],
        env={**os.environ, "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert played.returncode == 0, played.stdout
