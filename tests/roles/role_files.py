"""What the files of the roles declare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).parents[2] / "roles"
PLAYBOOKS = ROLES.parent / "playbooks"
NAMES = sorted(path.name for path in ROLES.iterdir() if (path / "meta").is_dir())


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def load(file: Path) -> Any:
    """Return what a YAML file holds, an empty mapping if there is none."""
    return (yaml.load(file.read_text(), _Loader) or {}) if file.exists() else {}


def specified(role: str) -> dict[str, dict[str, Any]]:
    """Return variable -> option of a role's argument specification."""
    entries = load(ROLES / role / "meta/argument_specs.yml").get("argument_specs", {})
    return {
        name: option
        for entry in entries.values()
        for name, option in (entry.get("options") or {}).items()
    }
