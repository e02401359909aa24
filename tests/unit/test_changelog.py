"""What changes wait for the next release, and how a release collects them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
KINDS = {"added": "Added", "changed": "Changed", "removed": "Removed", "fixed": "Fixed",
         "security": "Security"}  # fmt: skip
TEMPLATE = "template.md.jinja"


def faults(directory: Path) -> list[str]:
    """What is wrong with files that tell of changes: each is NAME.KIND.md, with one sentence."""
    found = []
    for file in sorted(directory.iterdir()):
        text = file.read_text(encoding="utf-8")
        parts = file.name.split(".")
        if file.name in (TEMPLATE, ".gitignore"):
            continue
        if len(parts) != 3 or not parts[0] or parts[1] not in KINDS or parts[2] != "md":
            found.append(f"{file.name}: not named NAME.KIND.md, KIND one of {', '.join(KINDS)}")
        elif "\n\n" in text or text.startswith(("-", "#", " ", "\n")) or not text.endswith(".\n"):
            found.append(f"{file.name}: not one paragraph that ends with a full stop")
    return found


def test_each_change_that_waits_for_a_release_is_well_formed() -> None:
    assert faults(CHECKOUT / "changelog.d") == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("fast.added.md", "Pools are faster.\n", None),
        ("fast.added.md", "Pools are faster,\nand smaller.\n", None),
        ("fast.better.md", "Pools are faster.\n", "fast.better.md: not named"),
        ("fast.md", "Pools are faster.\n", "fast.md: not named"),
        ("fast.added.rst", "Pools are faster.\n", "fast.added.rst: not named"),
        ("fast.added.md", "", "fast.added.md: not one paragraph"),
        ("fast.added.md", "- Pools are faster.\n", "fast.added.md: not one paragraph"),
        ("fast.added.md", "Pools are faster.\n\nReally.\n", "fast.added.md: not one paragraph"),
    ],
)
def test_what_is_not_well_formed_is_named(
    tmp_path: Path, name: str, text: str, fault: str | None
) -> None:
    (tmp_path / name).write_text(text)
    found = faults(tmp_path)
    assert [each.startswith(fault or "?") for each in found] == [True] * (fault is not None)


def test_a_release_collects_the_changes_above_the_one_before(tmp_path: Path) -> None:
    for file in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(CHECKOUT / file, tmp_path)
    waiting = tmp_path / "changelog.d"
    waiting.mkdir()
    shutil.copy(CHECKOUT / "changelog.d" / TEMPLATE, waiting)
    (waiting / "fast.added.md").write_text("Pools are faster,\nand smaller.\n")
    (waiting / "lost.fixed.md").write_text("No task is lost.\n")
    towncrier = Path(sys.executable).with_name("towncrier")
    subprocess.run(
        [towncrier, "build", "--yes", "--version", "9.1.0", "--date", "2030-01-31"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    before = (CHECKOUT / "CHANGELOG.md").read_text()
    head, mark, releases = before.partition("<!-- releases -->\n")
    made = (
        "\n## [9.1.0] - 2030-01-31\n\n### Added\n\n- Pools are faster,\n  and smaller.\n"
        "\n### Fixed\n\n- No task is lost.\n"
    )
    assert (tmp_path / "CHANGELOG.md").read_text() == head + mark + made + releases
    assert [file.name for file in waiting.iterdir()] == [TEMPLATE]
