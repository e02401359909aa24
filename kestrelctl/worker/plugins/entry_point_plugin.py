"""Prints what a plugin of an installed Python package returns:
`python -m kestrelctl.worker.plugins.entry_point_plugin NAME [PARAMETER]...`.
"""

from __future__ import annotations

import sys
from importlib import metadata

#: A plugin is a function that is given its parameters, a list of texts, and returns a value.
GROUP = "kestrel.properties"


def is_there(name: str) -> bool:
    """Whether a package offers a plugin of that name."""
    return bool(metadata.entry_points(group=GROUP, name=name))


def main() -> None:
    """Loads it, calls it, prints what it returns."""
    name, *parameters = sys.argv[1:]
    [plugin, *_] = metadata.entry_points(group=GROUP, name=name)
    print(plugin.load()(parameters))


if __name__ == "__main__":
    main()
