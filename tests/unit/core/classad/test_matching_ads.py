"""The two ads that are matched, how names are looked up in them, and what may be asked of them."""

from __future__ import annotations

from collections.abc import Callable

import classad2
import pytest
from msgspec.structs import replace

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.rules import FUNCTIONS, IMPURE, checked, shown
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.matching_ads import (
    JOB_ATTRIBUTES,
    WORKER_ATTRIBUTES,
    job_ad,
    problem_with_attributes,
    worker_ad,
)

GIBIBYTE = float(1 << 30)
WORKER = WorkerAd(
    assets={"cpus": 4.0, "memory": 2 * GIBIBYTE, "disk": GIBIBYTE, "fpga": 1.0},
    tags=("python", "isolation:namespace", "isolation:plain"),
    host="crow",
    os="Linux",
    arch="x86_64",
    version="0.2.0",
    attributes={"rack": 7, "Cpus": 99},
)
JOB = JobSpec(
    program=Program(argv=("x",)), request={"cpus": 0.5, "memory": 0.5 * GIBIBYTE, "fpga": 1.0}
)


def test_ads_are_spelled_as_in_htcondor() -> None:
    assert worker_ad(WORKER, "w@pool/1") == {
        "Cpus": 4,
        "Memory": 2048,
        "Disk": 1 << 20,
        "Fpga": 1,
        "Gpus": 0,
        "Name": "w@pool/1",
        "Machine": "crow",
        "Arch": "X86_64",
        "OpSys": "LINUX",
        "KestrelVersion": "0.2.0",
        "Isolation": "namespace",
        "Tags": ["ISOLATION:NAMESPACE", "ISOLATION:PLAIN", "PYTHON"],
        "rack": 7,
    }
    assert job_ad(JOB, "ada") == {
        "RequestCpus": 0.5,
        "RequestMemory": 512,
        "RequestFpga": 1,
        "RequestDisk": 0,
        "RequestGpus": 0,
        "Owner": "ada",
        "JobName": "",
        "JobPrio": 100,
    }


def test_each_attribute_of_the_pool_is_in_the_list_of_them() -> None:
    assert set(WORKER_ATTRIBUTES) == set(worker_ad(WORKER, "w")) - {
        "Cpus",
        "Memory",
        "Disk",
        "Gpus",
        "Fpga",
        "rack",
    }
    timed = replace(JOB, program=replace(JOB.program, time_limit_seconds=90.0))
    said = {name for name in job_ad(timed, "ada") if not name.startswith("Request")}
    assert set(JOB_ATTRIBUTES) == said


def test_how_long_a_task_may_run_is_the_less_of_what_its_job_says() -> None:
    assert "JobSeconds" not in job_ad(JOB, "ada")
    timed = replace(JOB, program=replace(JOB.program, time_limit_seconds=90.0))
    assert job_ad(timed, "ada")["JobSeconds"] == 90.0
    assert job_ad(replace(timed, time_request_seconds=60.0), "ada")["JobSeconds"] == 60.0


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("1 < time()", 4, "time() is not the same each time"),
        ("Random(3)", 0, "Random() is not the same each time"),
        ("true || stringListMember(Arch)", 8, "there is no function stringListMember(); there are"),
        ('eval("Memory") > 3', 0, "there is no function eval()"),
        ("[a = 1].a", 0, "records have no place here"),
        ("Cpus > 9223372036854775808", 7, "the number is beyond 2^63"),
        ("regexp(Arch, Machine)", 7, "the regular expression must be a text"),
        ('regexp("(a+)+$", Machine)', 7, "at most 1 repetition, after a ^ 2, and no groups"),
        ('regexp("a*a*b", Machine)', 7, "at most 1 repetition, after a ^ 2, and no groups"),
        ('regexp("^a*a*a*b", Machine)', 7, "at most 1 repetition, after a ^ 2, and no groups"),
        ('regexp("^a|b*b*", Machine)', 7, "at most 1 repetition, after a ^ 2, and no groups"),
        ('regexp("a", "b")', 0, "regexp() searches an attribute: regexp(TEXT, NAME)"),
        ('regexp("a")', 0, "regexp() searches an attribute: regexp(TEXT, NAME)"),
        ('regexp("a", A) || ' * 6 + "true", 90, "at most 5 regular expressions"),
    ],
)
def test_what_is_not_taken_has_a_place(text: str, position: int, what: str) -> None:
    with pytest.raises(BadExpression) as refused:
        checked(text)
    assert refused.value.position == position
    assert what in refused.value.what


def test_ordinary_expressions_are_taken() -> None:
    checked('regexp("^node[0-9]+", Machine) && Memory > 4 * 1024 && member("GPU", Tags)')
    checked('regexp("^[*+?({]\\\\.x*$", Arch) || versionGE(KestrelVersion, "0.2")')


_ARGUMENTS = ['"a"', "1", "{1}", '"a", "b"', '"a", {"a"}', "1, 2", '"<", {1}, 2', '"1", "2", "3"']


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_library_has_each_function_that_may_be_called(name: str) -> None:
    tried = [*_ARGUMENTS, "true, 1, 2", '"abc", 1']
    values = [classad2.ExprTree(f"{name}({each})").eval() for each in tried]
    assert any(value is not classad2.Value.Error for value in values)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("spelled", [str.lower, str.upper])
def test_the_library_knows_a_function_in_any_case(name: str, spelled: Callable[[str], str]) -> None:
    other = spelled(name)
    checked(f'{other}("a", A)')
    for each in [*_ARGUMENTS, "true, 1, 2", '"abc", 1', '"1.2", "1.1"']:
        values = [classad2.ExprTree(f"{word}({each})").eval() for word in (name, other)]
        assert repr(values[0]) == repr(values[1])


def test_no_function_is_both_pure_and_impure() -> None:
    assert not set(FUNCTIONS) & set(IMPURE)


def test_a_mistake_is_pointed_at() -> None:
    with pytest.raises(BadExpression) as refused:
        checked("Cpus > > 2")
    assert shown("Cpus > > 2", refused.value) == (
        "a value is expected, not '>', at character 8\nCpus > > 2\n       ^"
    )
    long = "a || " * 60 + "@"
    with pytest.raises(BadExpression) as refused:
        checked(long)
    _, line, caret = shown(long, refused.value).split("\n")
    assert line[caret.index("^")] == "@"


@pytest.mark.parametrize(
    "attributes",
    [
        {"a b": 1},
        {"true": 1},
        {"MACHINE": "x"},
        {"RequestX": 1},
        {"a": 1, "A": 2},
        {"a": "x" * 256},
        {"a": float("nan")},
        {"a": 1 << 63},
        {f"a{n}": n for n in range(51)},
    ],
)
def test_attributes_that_no_expression_could_use_are_refused(
    attributes: dict[str, bool | int | float | str],
) -> None:
    assert problem_with_attributes(attributes) is not None
    assert problem_with_attributes({"rack": 7, "Site_2": "north", "fast": True}) is None
