"""The inputs of a job: what it may say, who gets its tasks, and what those are told."""

from __future__ import annotations

import msgspec
import pytest
from cli_fake_pool import EXPLANATION, JOB, FakePool, run
from jobkit import changed

from kestrelctl.cli.job.explain import conclusion
from kestrelctl.core.members.worker_class import WorkerClass, class_key
from kestrelctl.core.model.files import inputs
from kestrelctl.core.model.files.inputs import Input, problem_with_input_name
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import Shape, shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.scheduling.match import Terms, match
from kestrelctl.manager.views import detailed
from kestrelctl.protocol import answers as an

SHA256 = "ab" * 32


def named(*names: str, pieces: int = 1) -> JobSpec:
    """A job with inputs of these names."""
    piece = Piece(sha256=SHA256, size_bytes=5, url="https://share/x")
    stored = StoredFile(sha256=SHA256, size_bytes=5 * pieces, pieces=(piece,) * pieces)
    return JobSpec(
        program=Program(
            argv=("true",), inputs=tuple(Input(name=name, stored=stored) for name in names)
        )
    )


def test_only_a_worker_that_fetches_inputs_gets_a_job_that_has_some() -> None:
    request, requires, *_ = shape_key(named("data"))
    shape = Shape(dict(request), requires)

    def says(*tags: str) -> Terms | Refusal:
        key = class_key(WorkerAd(tags=tags))
        return match(shape, WorkerClass(key[0], dict(key[1])))

    refused = says()
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.wanted) == (Reason.MISSING_TAGS, "INPUTS")
    assert isinstance(says(inputs.TAG), Terms)


def test_a_worker_is_told_whose_inputs_they_are_and_of_other_jobs_nothing() -> None:
    spec = named("data")
    template = Template.of(1, spec, "ada@example.org")
    assert (template.program.inputs, template.owner) == (spec.program.inputs, "ada@example.org")
    plain = msgspec.json.encode(
        Template.of(1, JobSpec(program=Program(argv=("true",))), "ada@example.org")
    )
    assert b"inputs" not in plain
    assert b"ada" not in plain


def test_a_list_of_jobs_does_not_show_where_files_are_read() -> None:
    assert named("data").head().program.inputs == ()


@pytest.mark.parametrize("name", ["data", "a=b", "with space", "ä" * 127, ".hidden", "...", "-x"])
def test_names_that_a_file_can_have_are_taken(name: str) -> None:
    assert problem_with_job(named(name)) is None


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/x", "a/b", "a\0b", "a\nb", "\udce9", "x" * 256, "kestrel-hosts"],
)
def test_other_names_are_refused(name: str) -> None:
    assert "name of an input" in (problem_with_input_name(name) or "")
    assert "name of an input" in (problem_with_job(named(name)) or "")


def test_a_job_with_too_much_of_it_is_refused() -> None:
    assert "two inputs are called 'a'" in (problem_with_job(named("a", "b", "a")) or "")
    many = [f"n{number}" for number in range(101)]
    assert problem_with_job(named(*many[:100])) is None
    assert "up to 100 inputs, not 101" in (problem_with_job(named(*many)) or "")
    assert problem_with_job(named("a", pieces=1000)) is None
    assert "up to 1000 pieces" in (problem_with_job(named("a", "b", pieces=501)) or "")


def test_a_job_whose_tasks_start_elsewhere_has_no_inputs() -> None:
    spec = changed(named("a"), workdir="/srv")
    assert "scratch directories" in (problem_with_job(spec) or "")


def test_a_file_that_cannot_be_had_by_what_is_said_of_it_is_refused() -> None:
    stored = StoredFile(sha256="../../etc", size_bytes=0, pieces=())
    spec = JobSpec(program=Program(argv=("true",), inputs=(Input(name="a", stored=stored),)))
    assert "input 'a': the hash" in (problem_with_job(spec) or "")


def test_a_pool_none_of_whose_workers_fetches_inputs_says_so() -> None:
    lacking = Refusal(Reason.MISSING_TAGS, wanted="INPUTS")
    obstacle = an.Obstacle(workers=1, example="w1@x", refusal=lacking)
    told = msgspec.structs.replace(EXPLANATION, obstacles=[obstacle], could_run=0, ever=False)
    why, hint = conclusion(told)
    assert "workers that fetch the inputs of tasks" in why
    assert "without --input" in (hint or "")


def test_job_info_names_the_inputs_to_whom_it_tells_the_details() -> None:
    told = detailed(JOB, named("a b", "data"))
    shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=[told])), "job", "info", "7").stdout
    assert "inputs          'a b' data\n" in shown
    assert detailed(JOB, JobSpec(program=Program(argv=("true",)))).inputs is None


def test_an_operator_cannot_give_the_tag() -> None:
    result = run(FakePool(), "worker", "run", "--tags", "Inputs", "--pool", "p")
    assert result.exit_code == 2
    assert "cannot be given" in result.stderr


def with_stdin(**stdin: object) -> JobSpec:
    [one] = named("table").program.inputs
    return JobSpec(program=Program(argv=("true",), stdin=msgspec.structs.replace(one, **stdin)))


def test_a_job_with_a_standard_input_may_start_anywhere_and_goes_to_who_fetches_files() -> None:
    spec = changed(with_stdin(), workdir="/srv")
    assert problem_with_job(spec) is None
    assert "INPUTS" in shape_key(with_stdin())[1]
    assert Template.of(1, with_stdin(), "ada").owner == "ada"


def test_what_cannot_be_a_standard_input_is_refused() -> None:
    assert "directory" in (problem_with_job(with_stdin(directory=True)) or "")
    assert "control character" in (problem_with_job(with_stdin(name="a\nb")) or "")
    stored = StoredFile(sha256="x", size_bytes=0, pieces=())
    assert "standard input: the hash" in (problem_with_job(with_stdin(stored=stored)) or "")


def test_job_info_names_the_standard_input() -> None:
    told = detailed(JOB, with_stdin())
    shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=[told])), "job", "info", "7").stdout
    assert "standard input  table\n" in shown
