"""Why attempts end: kinds, the texts that travel, and nobody else who reads them."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

import kestrelctl
from kestrelctl.core.model.end_reason import (
    CANCELLED,
    NO_REASON,
    Blame,
    EndKind,
    EndReason,
    in_stage,
    out_of_lent_time,
    with_remark,
)

HOUSE = Path(kestrelctl.__file__).parent
DOCS = Path(__file__).parents[4] / "docs"
#: These have no word of their own in a text, or are made by functions.
OF_THEIR_OWN = {EndKind.NONE, EndKind.STAGE, EndKind.LENT_TIME, EndKind.OTHER}
PLAIN = [kind for kind in EndKind if kind not in OF_THEIR_OWN]
#: What takes a text apart.
TAKES_APART = {"startswith", "endswith", "partition", "split", "removeprefix"}


@pytest.mark.parametrize("kind", PLAIN)
def test_each_kind_is_read_from_its_own_text(kind: EndKind) -> None:
    assert EndReason.of(kind.text()) == EndReason(kind)
    assert EndReason.of(kind.text("why: so")) == EndReason(kind, "why: so")


def test_a_reason_travels_whatever_its_detail_is_made_of() -> None:
    """A result with a text that is none could not be written, nor could any after it."""
    reason = EndKind.NO_INPUT.text("caf\xe9 \udcff \ud800")
    assert msgspec.json.decode(msgspec.json.encode(reason)) == "no-input: caf\xe9 \\udcff \\ud800"


def test_no_reason_is_an_exit() -> None:
    assert EndReason.of("").kind is EndKind.NONE


@pytest.mark.parametrize("text", ["on fire: very", "memory-limitless", "stage", ":", "x" * 2_000])
def test_what_another_version_says_is_another_reason_and_keeps_its_words(text: str) -> None:
    assert EndReason.of(text) == EndReason(EndKind.OTHER, text)


@pytest.mark.parametrize(
    ("reason", "stage", "computed"),
    [
        ("stage setup: exit code 3", "setup", False),
        ("stage in: time-limit", "in", False),
        ("stage out: signal 9", "out", True),
        ("", "", False),
        ("time-limit", "", False),
        ("the stage out: was long", "", False),
        ("stage outside: exit code 1", "", False),
    ],
)
def test_a_reason_says_which_stage_failed(reason: str, stage: str, computed: bool) -> None:
    why = EndReason.of(reason)
    assert (why.stage, why.has_computed) == (stage, computed)


def test_how_the_last_try_of_a_stage_ended_is_a_reason_inside_the_reason() -> None:
    why = EndReason.of(in_stage("in", EndKind.MEMORY_LIMIT.text("used all")))
    assert (why.kind, why.stage) == (EndKind.STAGE, "in")
    assert EndReason.of(why.detail) == EndReason(EndKind.MEMORY_LIMIT, "used all")


def test_lent_time_is_no_lack_of_the_machine_and_says_it_in_the_words_that_pools_know() -> None:
    text = out_of_lent_time("60 s")
    assert text == "no-resources: the lender's rules let a task run for 60 s"
    assert EndReason.of(text).kind is EndKind.LENT_TIME
    assert EndReason.of("no-resources: the lender's rules: no GPUs").kind is EndKind.NO_RESOURCES


def test_two_remarks_stand_in_one_reason_and_one_may_be_missing() -> None:
    cleanup = EndKind.CLEANUP_FAILED.text("exit code 1")
    outputs = EndKind.OUTPUTS_INCOMPLETE.text("'a' is no file")
    both = with_remark(cleanup, outputs)
    assert both == "cleanup-failed: exit code 1; outputs-incomplete: 'a' is no file"
    assert EndReason.of(both).kind.is_remark
    assert with_remark(NO_REASON, outputs) == outputs


def test_only_machines_and_pools_have_a_task_run_elsewhere() -> None:
    found = {kind for kind in EndKind if kind.runs_elsewhere}
    assert found == {
        EndKind.NO_SPACE,
        EndKind.NO_RESOURCES,
        EndKind.LENT_TIME,
        EndKind.MOVED,
    }
    assert {kind.fault for kind in found} == {Blame.MACHINE, Blame.POOL}


def test_what_never_ran_has_no_exit_code() -> None:
    never = {kind for kind in EndKind if EndReason(kind).never_ran}
    assert never == {EndKind.CANNOT_START, EndKind.NO_INPUT, EndKind.NO_ENVIRONMENT}
    assert EndReason.of("stage in: exit code 1").never_ran
    assert not EndReason.of("stage out: exit code 1").never_ran


def test_each_kind_has_a_sentence_of_its_own() -> None:
    sentences = [kind.sentence for kind in EndKind]
    assert len(set(sentences)) == len(sentences)
    assert all(each[0].isupper() and each.endswith(".") for each in sentences)


def test_a_reason_travels_as_its_text() -> None:
    assert msgspec.json.encode(CANCELLED) == b'"cancelled"'
    assert type(EndKind.TIME_LIMIT.text()) is str


def test_the_page_of_exits_has_each_kind_with_its_sentence_and_its_fault() -> None:
    lines = (DOCS / "exit-codes.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| `") and line.count("|") == 4]
    wanted = [
        f"| `{kind.value}` | {kind.fault.value} | {kind.sentence} |"
        for kind in EndKind
        if kind is not EndKind.NONE
    ]
    assert [row for row in rows if row in wanted] == wanted


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _reads_a_reason(node: ast.AST) -> bool:
    """Whether an expression takes the text of a reason apart, or compares it with words."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in TAKES_APART and _name(node.func.value) == "reason"
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    words = any(isinstance(each, ast.Constant) and each.value for each in sides)
    return words and any(
        isinstance(each, ast.Attribute) and each.attr == "reason" for each in sides
    )


def _makes_a_reason(node: ast.AST) -> bool:
    """Whether a text begins as one of a reason does that has a detail."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    word, colon, _ = node.value.partition(": ")
    return bool(colon) and any(word == kind for kind in PLAIN if "-" in kind)


def test_nobody_else_makes_reasons_or_takes_them_apart() -> None:
    paths = [path for path in HOUSE.rglob("*.py") if path.name != "end_reason.py"]
    found = [
        f"{path.relative_to(HOUSE)}:{node.lineno}"
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if _reads_a_reason(node) or _makes_a_reason(node)
        if isinstance(node, ast.expr)
    ]
    assert len(paths) > 100
    assert found == []
