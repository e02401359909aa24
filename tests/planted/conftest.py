"""Which defects are planted, and what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from planting import PARTS


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--planted",
        choices=(*PARTS, "sample"),
        default="twelfth",
        help="defects that are planted: the part whose turn it is, all, or 100 drawn by chance",
    )
    parser.addoption(
        "--planted-table", type=Path, help="where to write what found each, and how soon"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    file: Path | None = terminalreporter.config.getoption("--planted-table", default=None)
    if file is None:
        return
    rows = [
        row
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, row in getattr(report, "user_properties", ())
        if name == "planted"
    ]
    head = ["| defect | where | found by | seconds |", "|---|---|---|---|"]
    file.write_text("\n".join([*head, *rows, ""]), encoding="utf-8")
