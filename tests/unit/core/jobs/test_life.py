"""The life of an attempt is the table that the code and the documentation have of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from poolkit import PoolDriver

from kestrelctl.core.jobs.attempt import LIFE, LifeStep, Phase

CHECKOUT = Path(__file__).parents[4]
CORE = CHECKOUT / "kestrelctl" / "core"


def test_the_page_has_the_table() -> None:
    def row(step: LifeStep) -> tuple[str, ...]:
        before, after = (
            phase.value if phase is not None else "nobody has it"
            for phase in (step.before, step.after)
        )
        return before, step.what, after, f"`{step.does}`"

    page = (CHECKOUT / "docs" / "architecture.md").read_text()
    section = page.partition("## The life of an attempt")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \| (`.*`) \|$", section, re.MULTILINE)
    assert rows == [row(step) for step in LIFE]


def writers() -> set[str]:
    """The functions of the pool that set the attempt of a task, or the phase of one."""
    found = set()
    for path in CORE.rglob("*.py"):
        if path.parent.name in ("agent", "batch"):
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name != "__init__":
                for node in ast.walk(function):
                    targets = node.targets if isinstance(node, ast.Assign) else []
                    names = {each.attr for each in targets if isinstance(each, ast.Attribute)}
                    if names & {"attempt", "phase"}:
                        found.add(f"{path.stem}.{function.name}")
    return found


def test_only_the_functions_of_the_table_write_it() -> None:
    assert {f"table.{step.does}" for step in LIFE} - writers() == {"table.adopt"}  # which begins it
    assert writers() <= {f"table.{step.does}" for step in LIFE}


def test_attempts_take_the_steps_of_the_table() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1)
    driver.submit(1)
    [first] = [number for number, _, _ in driver.held("w")]
    for job in driver.pool.jobs:
        job.learn(0.001, 1)
    driver.submit(8)

    def phases() -> dict[int, Phase]:
        attempts = [task.attempt for task in driver.worker("w").held.values()]
        return {each.number: each.phase for each in attempts if each is not None}

    taken = {(None, phase) for phase in phases().values()}
    while before := phases():
        driver.report("w")
        after = phases()
        taken |= {(before.get(n), after.get(n)) for n in before.keys() | after.keys()}
    steps = {(step.before, step.after) for step in LIFE}
    assert first
    assert {pair for pair in taken if pair[0] is not pair[1]} <= steps
