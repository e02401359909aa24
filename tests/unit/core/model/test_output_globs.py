"""Which files a glob means, and which globs a job may have."""

from __future__ import annotations

import pytest
from jobkit import job_spec

from kestrelctl.core.model.files.outputs import MOST_GLOBS, TAG, OutputGlobs
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.validate import problem_with_job


def fits(glob: str, path: str) -> bool:
    globs = OutputGlobs([glob])
    places = globs.start
    for name in path.split("/"):
        places = globs.below(places, name)
    return bool(globs.matched(places))


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("result.csv", "result.csv"),
        ("./result.csv", "result.csv"),
        ("*.csv", "a.csv"),
        ("*.csv", ".csv"),
        ("*.csv", "two\nlines.csv"),
        ("*.csv", "\udcff.csv"),
        ("out/*", "out/a"),
        ("out//*", "out/a"),
        ("**/*.csv", "a.csv"),
        ("**/*.csv", "deep/down/a.csv"),
        ("**", "a"),
        ("**", "deep/down/a"),
        ("out/", "out/a"),
        ("out/", "out/deep/down/a"),
        ("out/**/a", "out/a"),
        ("a/**/b/**/c", "a/x/b/y/z/c"),
        ("[ab]?", "b1"),
    ],
)
def test_what_a_glob_means(glob: str, path: str) -> None:
    assert fits(glob, path)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("*.csv", "deep/a.csv"),
        ("out", "out/a"),
        ("out/*", "out/deep/a"),
        ("out/", "out"),
        ("out/", "elsewhere/out/a"),
        ("**/*.csv", "a.csv/b"),
        ("result.csv", "RESULT.csv"),
        ("a/**/b", "b"),
        ("x/..", "x/y/.."),
    ],
)
def test_what_a_glob_does_not_mean(glob: str, path: str) -> None:
    assert not fits(glob, path)


def test_a_walk_does_not_go_where_nothing_can_fit() -> None:
    globs = OutputGlobs(["out/*.csv", "result"])
    assert globs.go_on(globs.below(globs.start, "out"))
    assert not globs.go_on(globs.below(globs.start, "elsewhere"))
    assert not globs.go_on(globs.below(globs.start, "result"))


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"outputs": ("/etc/passwd",)}, "relative to the scratch directory"),
        ({"outputs": ("../other/*",)}, "may leave it"),
        ({"outputs": ("a/../../b",)}, "may leave it"),
        ({"outputs": ("a/..",)}, "may leave it"),
        ({"outputs": ("",)}, "names no file"),
        ({"outputs": ("./",)}, "names no file"),
        ({"outputs": ("a\0b",)}, "NUL"),
        ({"outputs": ("x" * 5000,)}, "characters"),
        ({"outputs": ("x",) * (MOST_GLOBS + 1)}, "at most"),
        ({"outputs": ("x",), "workdir": "/home/ada"}, "start in '/home/ada'"),
        ({"outputs": ("x",), "service": True}, "a service"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(job: dict[str, object], why: str) -> None:
    spec = job_spec(**job)
    assert why in (problem_with_job(spec) or "")


def test_dots_in_names_leave_nothing() -> None:
    spec = JobSpec(program=Program(argv=("true",), outputs=("a..b", "...", ".hidden", "out/...")))
    assert problem_with_job(spec) is None


def test_a_job_with_outputs_goes_only_to_workers_that_store_them() -> None:
    plain = JobSpec(program=Program(argv=("true",)))
    asks = JobSpec(program=Program(argv=("true",), outputs=("*.csv",)))
    assert TAG.upper() in shape_key(asks)[1]
    assert TAG.upper() not in shape_key(plain)[1]
    assert Template.of(1, asks).program.outputs == ("*.csv",)


def test_the_head_of_a_job_has_a_few_of_its_globs() -> None:
    spec = JobSpec(
        program=Program(argv=("true",), outputs=tuple(f"{n}-{'x' * 90}" for n in range(MOST_GLOBS)))
    )
    assert 0 < sum(map(len, spec.head().program.outputs)) < 2000
