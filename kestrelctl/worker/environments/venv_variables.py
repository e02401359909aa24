"""The variables of a process that runs inside a virtual environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Names the environment, as its `activate` does (Python's venv documentation).
VARIABLE = "VIRTUAL_ENV"


def venv_variables(prepared: str, outside: Mapping[str, str]) -> dict[str, str]:
    """The environment's own variables: its programs come before those that are found outside.

    Args:
        prepared: the directory of the environment.
        outside: the variables of the process without it.
    """
    return {"PATH": f"{prepared}/bin:{outside.get('PATH', os.defpath)}", VARIABLE: prepared}
