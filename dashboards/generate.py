"""Writes the dashboards: `python dashboards/generate.py [DIRECTORY]`.

They are made from the descriptions in `boards/`, one file for each, and committed; a test checks
that the files are what would be written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from boards import BOARDS
from grafana import render


def main() -> None:
    """Writes each board as UID.json, without the prefix `kestrel-`, beside this file."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for board in BOARDS:
        file = directory / f"{board.uid.removeprefix('kestrel-')}.json"
        file.write_text(json.dumps(render(board), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
