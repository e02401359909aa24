"""What a person can say to the pool, and how it looks on a phone."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kestrelctl.chat import sentences, typed_words, words
from kestrelctl.chat.step import Step, no_such_job
from kestrelctl.cli.job.commands import job as job_commands
from kestrelctl.cli.submit.commands import submit as submit_command
from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

PAGE = Path(__file__).parents[3] / "docs" / "chat.md"
EXAMPLES = [
    line
    for block in re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in block.splitlines()
]
ADA = "ada@users.pool"
LONGEST_LINE = 110
SPEC = JobSpec(program=Program(argv=("./run", "{}")), count=100)
REPLIES: list[an.Reply] = [
    an.Failed(id="", code="not-found", message="there is no job 12", hint="`kestrelctl job list`"),
    an.Failed(id="", code="error", message="x" * 5000),
]


def view(job_id: int = 12, **changes: Any) -> an.JobView:
    fields: dict[str, Any] = {
        "job_id": job_id, "name": "fit", "owner": ADA, "state": "active", "tasks": 100,
        "submitted_at": 1000.0, "waiting": 50, "running": 10, "done": 40, "spec": SPEC,
    }  # fmt: skip
    return an.JobView(**(fields | changes))


ENDED = {"state": "failed", "ended_at": 1182.0, "waiting": 0, "running": 0, "done": 97}


def asked(body: str) -> Any:
    """The request that a message makes."""
    found = words.read(body, ADA)
    assert isinstance(found, Step), found
    return found.request


def said(body: str, *replies: an.Reply) -> str:
    """What is said in the end."""
    found = words.read(body, ADA)
    for reply in replies:
        assert isinstance(found, Step), found
        found = found.answer(reply)
    assert isinstance(found, str), found
    return found


def refused(code: str, message: str = "no") -> an.Failed:
    return an.Failed(id="", code=code, message=message)


def log(text: bytes, **changes: Any) -> an.Log:
    fields: dict[str, Any] = {"data": text, "size_bytes": len(text)}
    return an.Log(id="", **(fields | changes))


# -- which request ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ("jobs", rq.ListJobs(owner=ADA, states=["active"], limit=8)),
        ("JOBS.", rq.ListJobs(owner=ADA, states=["active"], limit=8)),
        ("kestrelctl job list", rq.ListJobs(owner=ADA, states=["active"], limit=8)),
        ("job 12", rq.ListJobs(jobs="12")),
        ("/job #12", rq.ListJobs(jobs="12")),
        ("job", rq.ListJobs(jobs="last")),
        ("status 12", rq.ListJobs(jobs="12")),
        ("cancel 12", rq.CancelJobs(jobs="12")),
        ("cancel 3, 5–9", rq.CancelJobs(jobs="3,5-9")),  # noqa: RUF001
        ("$ ./kestrel job cancel all", rq.CancelJobs(jobs="all")),
        ("explain last", rq.ExplainJob(job="last")),
        ("logs 12 3", rq.Logs(job="12", task_id=3)),
        ("logs 12 3 --stderr", rq.Logs(job="12", task_id=3, stream="stderr")),
        ("Workers", rq.ListWorkers(limit=200)),
        ("workers w1", rq.ListWorkers(names=["w1"], limit=200)),
        ("status", rq.PoolStatus()),
        ("pool status", rq.PoolStatus()),
    ],
)
def test_words_make_requests(body: str, request_: rq.Request) -> None:
    assert asked(body) == request_


def spec_of(body: str) -> JobSpec:
    request = asked(body)
    assert isinstance(request, rq.SubmitJob)
    return request.spec


@pytest.mark.parametrize(
    ("body", "argv"),
    [
        ("submit -- ./run {}", ("./run", "{}")),
        ("submit sleep 5", ("sleep", "5")),
        ("submit -- echo --help -o x", ("echo", "--help", "-o", "x")),
        ("submit -- sh -c 'a | b'", ("sh", "-c", "a | b")),
        ('submit -- grep "|" x', ("grep", "|", "x")),
        ("submit -- curl x?a=1&b=2", ("curl", "x?a=1&b=2")),
        ("submit -- echo “two words” ‘and more’", ("echo", "two words", "and more")),  # noqa: RUF001
        ("submit -- echo „so geht’s“", ("echo", "so geht’s")),  # noqa: RUF001
        ("submit -- echo don’t", ("echo", "don’t")),  # noqa: RUF001
        ('submit -- echo “it is "so" $x”', ("echo", 'it is "so" $x')),
        ("submit -- echo '“as it is”'", ("echo", "“as it is”")),
        ("submit —cpus 2 — ./run —fast 1–3", ("./run", "--fast", "1–3")),  # noqa: RUF001
        ("submit -- ~/run $HOME *", ("~/run", "$HOME", "*")),
        ("submit\u00a0--\u00a0true", ("true",)),
        ("submit -- sh -c 'one\ntwo'", ("sh", "-c", "one\ntwo")),
    ],
)
def test_a_command_is_taken_as_it_is_meant(body: str, argv: tuple[str, ...]) -> None:
    assert spec_of(body).program.argv == argv


def test_options_are_those_of_the_command_line() -> None:
    body = (
        "submit --array 1–3,7 --name “a b” --priority 7 --cpus 2 --memory 1G --requires a,b "  # noqa: RUF001
        "--isolation plain --max-running 4 --max-failures 2 --max-losses 3 --time-limit 15m "
        "--on-worker-lost wait --env A=1 --env B=2 --notify failures --key k "
        "--success-exit 0,3 --no-retry-on 2,64-78 --backoff 5 --max-backoff 1h --stop-signal INT "
        "--stop-grace 30 -- x"
    )
    request = asked(body)
    assert request.key == "k"
    assert request.spec == JobSpec(
        program=Program(
            argv=("x",),
            time_limit_seconds=900.0,
            env={"A": "1", "B": "2"},
            success_exits=((0, 0), (3, 3)),
            stop_signal="INT",
            stop_grace_seconds=30.0,
        ),
        name="a b",
        count=4,
        first=1,
        step=1,
        further=((7, 1, 1),),
        priority=7,
        request={"cpus": 2.0, "memory": 2**30},
        requires=("a", "b", "isolation:plain"),
        max_running=4,
        max_failures=2,
        max_losses=3,
        on_worker_lost="wait",
        notify=Notify.FAILURES,
        no_retry_on=((2, 2), (64, 78)),
        backoff_seconds=5.0,
        max_backoff_seconds=3600.0,
    )


def test_every_option_of_the_command_line_is_taken_or_refused_with_a_reason() -> None:
    options = [
        each for param in submit_command.params for each in param.opts if each.startswith("-")
    ]
    answers = {option: words.read(f"submit {option} 1 -- x", ADA) for option in options}
    told = {option: answer for option, answer in answers.items() if isinstance(answer, str)}
    assert told
    for option, answer in told.items():
        assert "o such option" not in answer, option


@pytest.mark.parametrize(
    "option",
    [
        "--each-line f",
        "--from-json f",
        "--wait",
        "--progress",
        "-o json",
        "-q",
        "--chdir d",
        "--export PATH",
        "--on-end ls",
    ],
)
def test_what_makes_no_sense_in_a_chat_is_refused(option: str) -> None:
    assert "does not work in a chat" in said(f"submit {option} -- x")
    assert spec_of(f"submit -- x {option}").program.argv[0] == "x"


def test_a_job_file_cannot_be_seen_from_here() -> None:
    assert "job file" in said("submit sweep.toml")
    assert spec_of("submit -- sweep.toml").program.argv == ("sweep.toml",)


def test_expressions_in_a_chat_keep_the_quotes_in_them() -> None:
    text = 'Memory >= 512 && Arch == "X86_64"'
    for said_so in (f"--requirements '{text}'", f"--requirements ‘{text}’"):  # noqa: RUF001
        spec = spec_of(f"submit {said_so} --rank Memory -- x")
        assert (spec.requirements, spec.rank, spec.program.argv) == (text, "Memory", ("x",))
    assert "a value is expected, not '>', at character 8." in said(
        "submit --requirements 'Cpus > > 2' -- x"
    )


def test_who_submits_in_a_chat_is_told_of_the_end() -> None:
    assert spec_of("submit -- x").notify is Notify.ALWAYS
    assert JobSpec(program=Program(argv=("x",))).notify is Notify.NEVER


# -- what cannot be understood ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("sumbit -- x", "did you mean submit?"),
        ("hello there", "Write: help"),
        ("what's up?", 'I do not know "what\'s"'),
        ("help me", 'I do not know "me"'),
        ("submit", "There is no command"),
        ("submit --arry 1 -- x", "--array"),
        ("submit --if-parent-fails wait -- x", "waits for none"),
        ("submit --memory lots -- x", "Write 512M"),
        ("submit --priority 300 -- x", "--priority"),
        ("submit --key '' -- x", "1 to 200 characters"),
        ("submit -- echo 'a", "A quote is left open"),
        ("submit -- echo “a", "A quote is left open"),
        ("submit -- a | b", "| is for a shell"),
        ("submit -- a > out.txt", "> is for a shell"),
        ("submit -- a && b", "&& is for a shell"),
        ("cancel", "Which job?"),
        ("cancel x", "Not a selection of jobs"),
        ("cancel 1,001", "Write 1001, or 1"),
        ("cancel 12 3", "Is 3 a job, or a task of job 12?"),
        ("cancel 5, #12 7-9", "Is 7-9 a job, or a task of job 12?"),
        ("job 1 2", "too many"),
        ("logs 12 x", "Not a task"),
        ("logs 12 " + "9" * 5000, "Not a task"),
        ("cancel " + "9" * 5000, "Not a selection of jobs"),
        ("cancel 1-" + "9" * 5000, "Not a selection of jobs"),
        ("submit --array 1-" + "9" * 5000 + " -- true", "Not an array of tasks"),
        ("submit --array 1-2:" + "9" * 5000 + " -- true", "Not an array of tasks"),
        ("submit --memory " + "9" * 400 + " -- true", "Not a size"),
        ("jobs x", "Not a job"),
        ("help " + "x" * 20_000, "at most 10,000 characters"),
    ],
)
def test_what_is_wrong_is_said_in_words(body: str, part: str) -> None:
    answer = said(body)
    assert part in answer
    assert len(answer) < 2_500


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("retry 12", "job retry"),
        ("kestrelctl job retry 12 3", "job retry"),
        ("forget 12", "job forget"),
        ("story", "job story"),
        ("hold 1-6", "job hold"),
        ("worker resize w1 --cpus 2", "worker resize"),
        ("worker drain w1", "worker drain"),
        ("top", "top"),
    ],
)
def test_what_only_the_command_line_can_do_is_said(body: str, where: str) -> None:
    word = where.rsplit(" ", maxsplit=1)[-1]
    assert (
        said(body) == f"`{word}` does not work in a chat.\nOn the command line: kestrelctl {where}"
    )


@pytest.mark.parametrize("verb", job_commands.commands)
def test_each_verb_for_jobs_is_a_word_here_or_on_the_command_line(verb: str) -> None:
    assert "I do not know" not in str(words.read(f"job {verb} 7", ADA))


@pytest.mark.parametrize(
    ("option", "meant"),
    [("--memroy 2G", "; did you mean --memory?"), ("--zzzz", ".")],
)
def test_of_a_mistyped_option_the_one_is_named_that_is_meant(option: str, meant: str) -> None:
    name = option.split()[0]
    text = said(f"submit {option} -- x")
    assert text == f"There is no option {name}{meant}\nWrite: help submit"


def test_rubbish_is_always_answered() -> None:
    chance = random.Random(20)
    known = [
        *words._WORDS,
        *("--", "-", "—", "“", "”", "’", "'", '"', "\\", "{}", "last", "all", "1-", "12", "1,2"),  # noqa: RUF001
        *("--array", "--key", "--notify", "-o", "--help", "\x00", "\ud800", "🐦", "\n", "#", "|"),
        *("=", "$(x)", "٣", "²", "%s"),
    ]
    for _ in range(10_000):
        parts = [chance.choice(known) for _ in range(chance.randrange(6))]
        found = words.read(chance.choice(["", " "]).join(parts), ADA)
        if isinstance(found, Step):
            for reply in REPLIES:
                step: str | Step = found.answer(reply)
                while isinstance(step, Step):
                    step = step.answer(reply)
                assert step
        else:
            assert found


# -- to a job's own address ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ("", rq.ListJobs(jobs="12")),
        ("status", rq.ListJobs(jobs="12")),
        ("Status?", rq.ListJobs(jobs="12")),
        ("job 12", rq.ListJobs(jobs="12")),
        ("cancel", rq.CancelJobs(jobs="12")),
        (" /cancel ", rq.CancelJobs(jobs="12")),
        ("cancel #12", rq.CancelJobs(jobs="12")),
        ("explain", rq.ExplainJob(job="12")),
        ("explain 12", rq.ExplainJob(job="12")),
        ("logs", rq.ListJobs(jobs="12")),
        ("logs 3", rq.Logs(job="12", task_id=3, stream="stdout")),
        ("logs\n3", rq.Logs(job="12", task_id=3, stream="stdout")),
        ("logs 12", rq.Logs(job="12", task_id=12, stream="stdout")),
        ("logs 12 3", rq.Logs(job="12", task_id=3, stream="stdout")),
        ("logs 3 —stderr", rq.Logs(job="12", task_id=3, stream="stderr")),
        ("jobs", rq.ListJobs(owner=ADA, states=["active"], limit=8)),
        ("workers", rq.ListWorkers(limit=200)),
    ],
)
def test_a_jobs_own_address_understands_words_about_it(body: str, request_: rq.Request) -> None:
    found = words.read_to_job(12, body, ADA)
    assert isinstance(found, Step), found
    assert found.request == request_


@pytest.mark.parametrize(
    "body",
    [
        *("cancel 7", "cancel all", "cancel 12 7", "cancel 12,7", "explain 7", "job 7", "status 7"),
        *("submit -- true", "hello", "help", "jobs x", '"', "x" * 1_000_000),
        "cancel " + "9" * 5000,
    ],
)
def test_a_jobs_own_address_does_nothing_to_others(body: str) -> None:
    assert "This is the address of job 12. Write: status" in str(words.read_to_job(12, body, ADA))


@pytest.mark.parametrize("body", ["logs 1 2 3", "logs x", 'logs "', "logs 3 " + "x" * 20_000])
def test_what_is_wrong_at_a_jobs_own_address_is_said_in_words(body: str) -> None:
    found = words.read_to_job(12, body, ADA)
    assert isinstance(found, str)
    assert len(found) < 2_500


def test_hints_are_understood_at_a_jobs_own_address() -> None:
    task = an.TaskView(index=2, task_id=3, state=TaskState.FAILED, exit_code=1)
    hints = [
        *re.findall(r": (explain \d+)", sentences.job_details(view(running=0))),
        *re.findall(r": (logs \d+ \d+)", sentences.bad_tasks(12, [task], 1)),
        *re.findall(r": (jobs)", no_such_job("12")),
    ]
    assert len(hints) == 3
    for hint in hints:
        assert isinstance(words.read_to_job(12, hint, ADA), Step)


# -- answers ---------------------------------------------------------------------------------------


def test_help_tells_of_every_word() -> None:
    answer = said("help")
    assert all(f"\n{word}" in answer for word in words._WORDS if word != "help")
    assert said("") == said("?") == said("Help!") == said("kestrelctl --help") == answer
    for word in words._WORDS:
        assert said(f"help {word}") == said(f"{word} --help")
    assert len(answer.splitlines()) < 12


def test_help_submit_tells_of_every_option_that_is_taken() -> None:
    answer = said("help submit")
    for option in ("--array", "--memory", "--notify", "--key", "--env"):
        assert f"\n{option} " in answer
    assert "--wait" not in answer
    assert "--each-line" not in answer


def test_a_submission_is_acknowledged() -> None:
    done = an.Submitted(id="", job_id=12, tasks=100)
    answer = said("submit --array 1-100 -- ./run {}", done)
    assert answer == (
        "Job 12: 100 tasks of ./run '{}'\nI tell you when it ends. How far it is: job 12"
    )
    assert "from an earlier" in said(
        "submit -- x", an.Submitted(id="", job_id=12, tasks=1, repeated=True)
    )
    assert "{seed} stays as it is" in said("submit -- x {seed}", done)


def explanation(**changes: Any) -> an.JobExplanation:
    obstacle = an.Obstacle(
        workers=2,
        example="w1@workers.pool/a",
        refusal=Refusal(Reason.TOO_SMALL, "64 cpus", "2 cpus"),
    )
    fields: dict[str, Any] = {
        "job": view(), "waiting": 40, "job_reasons": [], "obstacles": [obstacle], "could_run": 0,
        "ever": False,
    }  # fmt: skip
    return an.JobExplanation(id="", **(fields | changes))


def test_a_job_that_no_worker_could_run_is_told_of_at_once() -> None:
    done = an.Submitted(id="", job_id=12, tasks=1, hopeless=explanation())
    assert "But it waits: no worker could ever run it" in said("submit -- x", done)


def test_why_a_job_waits() -> None:
    assert said("explain 12", explanation()) == (
        "Job 12: 40 tasks waiting.\n"
        "No worker could ever run it; the closest is w1, "
        "which has 2 cpus where 64 cpus are wanted.\n"
        "Add such a worker, or: cancel 12"
    )


def test_of_a_job_with_nothing_left_to_start_it_is_said_what_runs() -> None:
    running = explanation(waiting=0, obstacles=[], job=view(waiting=0, running=2))
    assert said("explain 12", running) == "Job 12: no task waits, 2 are running."
    one = explanation(waiting=0, obstacles=[], job=view(waiting=0, running=1))
    assert said("explain 12", one) == "Job 12: no task waits, 1 is running."
    ending = explanation(waiting=0, obstacles=[], job=view(waiting=0, running=0))
    assert said("explain 12", ending) == "Job 12: no task waits."


def test_a_job_on_the_way_and_at_its_end() -> None:
    assert said("job 12", an.Jobs(id="", jobs=[view()])) == (
        "Job 12 \"fit\": 40 of 100 done, 10 running, 50 waiting\n./run '{}'"
    )
    waiting = view(running=0, waiting=60)
    assert said("job 12", an.Jobs(id="", jobs=[waiting])).endswith("Why it waits: explain 12")
    tasks = [
        an.TaskView(index=n, task_id=n + 1, state=TaskState.FAILED, exit_code=3) for n in range(4)
    ]
    answer = said(
        "job 12",
        an.Jobs(id="", jobs=[view(failed=7, **ENDED)]),
        an.Tasks(id="", tasks=tasks, after=3),
    )
    assert answer.startswith('Job 12 "fit" failed: 97 done, 7 failed in 3m 02s\n')
    assert answer.endswith("Task 4 failed: exit code 3\nand 3 more\nWhat it wrote: logs 12 1")


def test_what_others_wrote_stays_on_its_line() -> None:
    name, hidden = "a\nb\u202ec", "\u2067x\x1b[31m"
    task = an.TaskView(index=2, task_id=3, state=TaskState.FAILED, reason=name)
    record = JobRecord(
        job_id=12,
        owner=ADA,
        spec=JobSpec(program=Program(argv=("true",)), name=name),
        submitted_at=1.0,
        ended_at=2.0,
    )
    texts = [
        sentences.job_line(view(name=name)),
        sentences.notice(record, None),
        sentences.command(("./run", hidden)),
        sentences.bad_tasks(12, [task], 1),
        said(f"help {hidden}"),
        said("job 12", an.Failed(id="", code="error", message=name, cause=hidden, hint=hidden)),
    ]
    for text in texts:
        assert all(line.isprintable() for line in text.split("\n")), text
    assert ["\n" in text for text in texts] == [False, False, False, True, True, True]
    assert "\nb" not in "".join(texts)


@pytest.mark.parametrize("body", ["job 12", "job last", "logs 12", "logs last"])
def test_a_job_that_is_not_stored_yet_is_none_of_yours(body: str) -> None:
    job = body.split()[1]
    none = f"There is no job {job} of yours. To see yours, write: jobs"
    assert said(body, an.Jobs(id="", jobs=[])) == none
    assert said(f"cancel {job}", refused("not-found"), an.Jobs(id="", jobs=[])) == none


def test_anothers_job_is_none() -> None:
    none = "There is no job 12 of yours. To see yours, write: jobs"
    summary = an.Jobs(id="", jobs=[view(spec=JobSpec(program=Program(argv=())), name="")])
    assert said("job 12", summary) == none
    assert said("logs 12", summary) == none
    for body in ("explain 12", "logs 12 3", "cancel 12"):
        assert said(body, refused("not-allowed", "job 12 belongs to bob")) == none
    assert said("cancel 12", refused("not-found"), summary) == none
    over = an.Jobs(id="", jobs=[view(**ENDED)])
    for body in ("cancel 12", "cancel last"):
        assert said(body, refused("not-found"), over).startswith("It is over: job 12 ")


def test_of_several_jobs_it_is_said_that_it_was_done_for_ones_own() -> None:
    cause = "it was done for 2 other jobs"
    failed = an.Failed(id="", code="not-allowed", message="job 3 belongs to bob", cause=cause)
    told = said("cancel 1-3", failed)
    assert "jobs of yours" in told
    assert cause in told
    assert "bob" not in told


def test_many_jobs_are_a_few_lines() -> None:
    active = an.Jobs(id="", jobs=[view(n) for n in range(2, 7)], total=5)
    latest = [view(n, **(ENDED if n % 2 else {})) for n in range(38, 46)]
    lines = said("jobs", active, an.Jobs(id="", jobs=latest, total=1234)).splitlines()
    assert [line.split()[0] for line in lines] == [
        *("44", "42", "40", "38", "6", "5", "4", "3"),
        "and",
    ]
    assert lines[-1] == "and 1,226 more"
    old = said("jobs", an.Jobs(id="", jobs=[view(2)]), an.Jobs(id="", jobs=[view(9, **ENDED)]))
    assert [line.split()[0] for line in old.splitlines()] == ["2", "9"]
    none = an.Jobs(id="", jobs=[], total=0)
    assert said("jobs", none, none).startswith("You have no jobs.")
    assert all(len(line) < LONGEST_LINE for line in lines)


def test_what_is_left_to_be_cancelled_is_said() -> None:
    changed = an.Changed(id="", what=["1", "2"], tasks=30, left=5000)
    assert said("cancel all", changed) == (
        "Cancelled 2 jobs: 30 tasks stopped.\n5,000 more are left: write the same again"
    )


def test_many_workers_are_a_few_lines() -> None:
    views = [
        an.WorkerView(worker=f"w{n}@workers.pool/x", state="busy", running=n) for n in range(20)
    ]
    views.append(an.WorkerView(worker="w99@workers.pool/x", state="offline"))
    lines = said("workers", an.Workers(id="", workers=views)).splitlines()
    assert lines[:3] == ["21 workers: 1 offline, 20 busy", "w99 offline", "w19 busy, 19 running"]
    assert lines[-1] == "and 13 more"
    assert said("workers", an.Workers(id="", workers=[])) == "There are no workers."


def test_workers_that_share_an_account_are_told_apart() -> None:
    names = ("hand@workers.pool/core1", "hand@workers.pool/core2", "w1@workers.pool/vm")
    views = [an.WorkerView(worker=name, state="idle") for name in names]
    assert said("workers", an.Workers(id="", workers=views)).splitlines() == [
        *("3 workers: 3 idle", "hand/core1 idle", "hand/core2 idle", "w1 idle"),
    ]


def test_the_pool_in_two_lines() -> None:
    summary = an.PoolSummary(
        id="", version="1", epoch=1, up_seconds=1.0, workers={"idle": 2, "busy": 10},
        jobs_active=3, tasks_waiting=120, tasks_running=24, totals={}, manager_cpu_seconds=0.0,
        manager_rss_bytes=0, commits=0, commit_seconds_mean=0.0,
    )  # fmt: skip
    assert said("status", summary) == (
        "12 workers: 10 busy, 2 idle\n3 jobs under way: 24 tasks running, 120 waiting"
    )


def test_what_a_task_wrote() -> None:
    assert said("logs 12 3", log(b"\x1b[31mred\x1b[0m\r\nblue\n")) == "red\nblue"
    many = said("logs 12 3", log(b"".join(b"line %d\n" % n for n in range(100))))
    assert many.startswith("The end of 790 B:\n…line 80\n")
    assert len(many.splitlines()) == 21
    assert len(said("logs 12 3", log(b"x" * 60_000))) < 1_600
    assert said("logs 12 3", log(b"\xff")) == "\N{REPLACEMENT CHARACTER}"


def test_of_a_long_output_the_end_is_asked_for() -> None:
    found = words.read("logs 12 3", ADA)
    assert isinstance(found, Step)
    found = found.answer(log(b"x" * 65536, size_bytes=10**6, next_offset=65536))
    assert isinstance(found, Step)
    assert found.request == rq.Logs(job="12", task_id=3, offset=10**6 - 4000)
    assert str(found.answer(log(b"the end\n", size_bytes=10**6, skipped_bytes=1))).endswith("end")


def test_who_wrote_nothing_to_stdout_may_have_complained() -> None:
    assert said("logs 12 3", log(b""), log(b"no such file\n")) == "stderr:\nno such file"
    ended, runs = (
        an.Tasks(id="", tasks=[an.TaskView(index=2, task_id=3, state=state)])
        for state in (TaskState.DONE, TaskState.RUNNING)
    )
    empty = log(b"")
    assert said("logs 12 3", empty, empty, ended) == "Task 3 of job 12 wrote nothing."
    assert said("logs 12 3", empty, empty, runs) == "Task 3 of job 12 runs and wrote nothing yet."
    assert said("logs last 3", empty, empty, ended) == "Task 3 of your last job wrote nothing."
    assert said("logs 12 3", empty, empty, refused("error")) == "Task 3 of job 12 wrote nothing."
    for stream in ("stdout", "stderr"):
        text = said(f"logs 12 3 {stream}", empty, ended)
        assert text == f"Task 3 of job 12 wrote nothing to {stream}."


def test_the_only_task_need_not_be_named() -> None:
    alone = an.Jobs(id="", jobs=[view(tasks=1, spec=replace(SPEC, first=7))])
    assert said("logs", alone, log(b"hi\n")) == "hi"
    assert said("logs 12", an.Jobs(id="", jobs=[view(spec=replace(SPEC, first=1))])) == (
        "Job 12 has 100 tasks; whose output?\nWrite: logs 12 1"
    )


def test_hints_name_words_of_the_chat() -> None:
    failed = an.Failed(
        id="", code="usage", message="it ended", hint="`kestrelctl job tasks 12` shows"
    )
    assert said("explain 12", failed) == "It ended.\n`job 12` shows"
    assert said("job 12", REPLIES[0]) == "There is no job 12.\n`jobs`"


def test_a_hint_that_is_a_command_says_where_to_write_it() -> None:
    offline = an.Obstacle(workers=2, example="w1@x/1", refusal=Refusal(Reason.OFFLINE))
    away = explanation(obstacles=[offline], ever=True)
    assert said("explain 12", away).endswith("taken or away (2 offline).\nWrite: workers")
    nobody = explanation(obstacles=[])
    assert said("explain 12", nobody).endswith(
        "\nOn the command line: kestrelctl worker run --help"
    )


@pytest.mark.parametrize("body", EXAMPLES)
def test_the_examples_of_the_page_are_understood(body: str) -> None:
    assert isinstance(words.read(body, ADA), Step) or body.startswith("help")


# -- the end of a job ------------------------------------------------------------------------------


def ended(**counts: int) -> JobRecord:
    return JobRecord(
        job_id=12,
        owner=ADA,
        spec=JobSpec(program=Program(argv=("x",)), name="name"),
        submitted_at=1000.0,
        state="done",
        counts=Counts(**counts),
        ended_at=1182.0,
    )


def test_the_end_of_a_job_is_one_line_or_three() -> None:
    assert sentences.notice(ended(done=100), None) == (
        'job 12 "name" done: 100 done, 0 failed in 3m 02s'
    )
    assert sentences.notice(ended(done=97, lost=3), 5) == (
        'job 12 "name" done: 97 done, 0 failed, 3 lost in 3m 02s\n'
        "Which: job 12\nWhat one wrote: logs 12 5"
    )


def test_what_stopped_a_job_is_said_of_its_end() -> None:
    late = replace(ended(done=1, cancelled=3), stopped_by="deadline")
    assert sentences.notice(late, None).endswith(" in 3m 02s; stopped by its deadline")
    failed = replace(ended(failed=2, lost=1, cancelled=3), stopped_by="failed tasks")
    assert "; stopped after 3 failed tasks\n" in sentences.notice(failed, 5)
    line = sentences.job_line(view(**ENDED, failed=2, lost=1, stopped_by="failed tasks"))
    assert line.endswith("; stopped after 3 failed tasks")


@pytest.mark.parametrize(
    ("notify", "outcome", "cancelled", "wanted"),
    [
        (Notify.ALWAYS, "done", False, True),
        (Notify.ALWAYS, "cancelled", True, True),
        (Notify.NEVER, "failed", False, False),
        (Notify.FAILURES, "failed", False, True),
        (Notify.FAILURES, "done", False, False),
        (Notify.FAILURES, "failed", True, False),
        (Notify.FAILURES, "cancelled", True, False),
    ],
)
def test_who_wants_to_hear_of_it(
    notify: Notify, outcome: str, cancelled: bool, wanted: bool
) -> None:
    assert notify.wants(outcome, cancelled=cancelled) is wanted


def test_a_shells_words_are_found_outside_of_quotes_only() -> None:
    assert typed_words.shell_word('a \\| \'>\' "x | \\" | y" b;c') is None
    assert typed_words.shell_word("a 2>&1") == "2>&1"


def test_a_job_that_waits_for_the_last_one_is_submitted_when_that_is_known() -> None:
    found = words.read("submit --after last:ended -- ./report", ADA)
    assert isinstance(found, Step)
    assert found.request == rq.ListJobs(jobs="last")
    then = found.answer(an.Jobs(id="", jobs=[view(12)]))
    assert isinstance(then, Step)
    assert isinstance(then.request, rq.SubmitJob)
    assert then.request.spec.after == (After(12, 12, WantedEnd.ENDED),)


def test_what_is_wrong_beside_the_last_job_is_said_in_words() -> None:
    jobs = an.Jobs(id="", jobs=[view(12)])
    assert said("submit --after last --priority x -- ./report", jobs).startswith("Invalid value")
    none = said("submit --after last -- x", refused("not-found", "you have submitted no job yet"))
    assert none == "You have submitted no job yet."
