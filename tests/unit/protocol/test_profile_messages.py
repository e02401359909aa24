"""What the simplest workers say and are told, and what it becomes."""

from __future__ import annotations

import json

import pytest

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.model.job import placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shell_text import as_line, numbered
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import TAIL_BYTES, Outcome
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.errors import UsageError
from kestrelctl.protocol import codec, directions
from kestrelctl.protocol.chat.profile import Finish, Profile, TaskId, ad_of, result_of, task_message
from kestrelctl.protocol.requests import SubmitLine

#: As on the slides of 2009.
FIRST = (
    '{"type": "profile",\n  "os": "Linux",\n  "ram": 4096,\n  "cores": 4,\n'
    '  "provides": ["FOO", "BAR"]}'
)
SEAL = (100, 7, 20, 16, 5120094432107318321)


def profile(text: str) -> Profile:
    message = directions.from_worker.decode(text)
    assert isinstance(message, Profile)
    return message


def test_the_first_profile_is_an_ad() -> None:
    ad = ad_of(profile(FIRST), "w1")
    assert ad.assets == {"cpus": 4.0, "memory": 4096 << 20}
    assert ad.tags == ("FOO", "BAR", "LINUX", placeholders.TAG)
    assert (ad.os, ad.host, ad.version) == ("Linux", "w1", "profile")


def test_a_profile_may_say_little() -> None:
    ad = ad_of(profile('{"type": "profile"}'), "w1")
    assert ad.assets == {"cpus": 1.0}
    assert ad.tags == (placeholders.TAG,)
    said = ad_of(profile('{"type": "profile", "os": "Mac OS", "provides": "FOO BAR"}'), "w1")
    assert said.tags == ("FOO", "BAR", "MAC-OS", placeholders.TAG)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type": "profile", "cores": "four"}', "cores"),
        ('{"type": "profile", "cores": 0}', "cores"),
        ('{"type": "profile", "ram": -1}', "ram"),
        ('{"type": "profile", "provides": {"FOO": 1}}', "provides"),
        ('{"type": "profile", "provides": [7]}', "provides"),
        ('{"type": "finish"}', "id"),
        ('{"type": "finish", "id": "1", "status": "ok"}', "status"),
        ('{"type": "finish", "id": "1", "status": -9223372036854775808}', "status"),
    ],
)
def test_rubbish_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(codec.BadMessage, match=why):
        directions.from_worker.decode(text)


@pytest.mark.parametrize("tag", ["", "two words", "a,b", "isolation:systemd", "ISOLATION:plain"])
def test_tags_that_such_a_worker_cannot_give(tag: str) -> None:
    with pytest.raises(UsageError, match="provides"):
        ad_of(Profile(provides=[tag]), "w1")


def test_a_simple_worker_is_sent_no_job_with_a_directory() -> None:
    for given in (Profile(provides=["WorkDir"]), Profile(os="workdir")):
        with pytest.raises(UsageError, match="workdir"):
            ad_of(given, "w1")


def test_a_simple_worker_is_sent_no_job_with_inputs() -> None:
    with pytest.raises(UsageError, match="no tag inputs"):
        ad_of(Profile(provides=["Inputs"]), "w1")


@pytest.mark.parametrize("os", ["isolation:systemd", "Mac OS, new"])
def test_an_os_is_a_tag_like_the_others(os: str) -> None:
    with pytest.raises(UsageError, match="in os"):
        ad_of(Profile(os=os), "w1")


def attempt(spec: JobSpec, item: str | None = None) -> LocalAttempt:
    return LocalAttempt(103, Template.of(7, spec), 23, item, Claim({}), SEAL, 0.0)


def test_a_task_is_a_line_that_can_be_read() -> None:
    spec = SubmitLine(command="./run_task.sh -x", queue=99, cleanup="rm -f lock").submission().spec
    message = json.loads(codec.encode(task_message(attempt(spec))))
    assert message.pop("env")["KESTREL_TASK_ID"] == "23"
    assert message == {
        "type": "task",
        "id": "103.100.7.20.16.5120094432107318321",
        "job": 7,
        "task": 23,
        "command": "./run_task.sh -x 23",
        "cleanup": "rm -f lock 23",
    }


def test_a_command_of_words_becomes_a_line_of_the_same_words() -> None:
    spec = JobSpec(
        program=Program(argv=("printf", "%s $x", "{}"), env={"A": "b"}),
        count=99,
        items=("it's",) * 99,
    )
    message = task_message(attempt(spec, "it's"))
    assert message.command == """printf '%s $x' 'it'"'"'s'"""
    assert (message.cleanup, message.env["A"], message.env["KESTREL_ITEM"]) == ("", "b", "it's")


def test_a_line_whose_streams_are_joined_says_so_to_the_shell() -> None:
    spec = JobSpec(
        program=Program(argv=("sh", "-c", "a; b"), cleanup=("c",), join=True),
    )
    message = task_message(attempt(spec))
    assert message.command == "exec 2>&1; sh -c 'a; b'"
    assert message.cleanup == "exec 2>&1; c"


def test_a_line_with_the_number_is_what_it_was_made_of() -> None:
    words = numbered(" ./run_task.sh a ")
    assert words == ("/bin/sh", "-c", './run_task.sh a "$KESTREL_TASK_ID"')
    assert as_line(words, 5) == "./run_task.sh a 5"
    assert numbered("  ") == ()


def test_an_id_carries_all_that_a_report_needs() -> None:
    task = TaskId.parse("103.100.7.20.16.5120094432107318321")
    assert task is not None
    assert (task.number, task.job_id, task.index, task.seal) == (103, 7, 23, SEAL)


@pytest.mark.parametrize(
    "text",
    ["", "7", "103.100.7.20.16", "1.2.3.4.5.x", "99.100.7.20.16.1", "116.100.7.20.16.1",
     "9999999999999999999.9999999999999999999.7.20.16.1", "-1.100.7.20.16.1", "1" * 10_000],
)  # fmt: skip
def test_an_id_that_no_pool_has_made_is_none(text: str) -> None:
    assert TaskId.parse(text) is None


@pytest.mark.parametrize(
    ("finish", "cancelled", "outcome", "exit_code", "signal"),
    [
        (Finish(id=""), False, Outcome.DONE, 0, 0),
        (Finish(id="", status=3), False, Outcome.FAILED, 3, 0),
        (Finish(id="", status=-9), False, Outcome.FAILED, 0, 9),
        (Finish(id="", status=-9), True, Outcome.KILLED, 0, 9),
        (Finish(id=""), True, Outcome.DONE, 0, 0),
    ],
)
def test_what_a_worker_reports_is_a_result(
    finish: Finish, cancelled: bool, outcome: int, exit_code: int, signal: int
) -> None:
    task = TaskId(103, SEAL)
    result = result_of(finish, task, now=50.0, sent_at=40.0, cancelled=cancelled)
    assert (result.outcome, result.exit_code, result.signal) == (outcome, exit_code, signal)
    assert (result.started_at, result.wall_seconds) == (40.0, 10.0)


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    for finish in (Finish(id="", seconds=-1e12), Finish(id="")):
        result = result_of(finish, TaskId(103, SEAL), now=1e9, sent_at=1e9 + 5, cancelled=False)
        assert (result.started_at, result.wall_seconds) == (1e9, 0.0)


def test_output_is_text_of_which_the_end_is_kept() -> None:
    finish = Finish(id="", seconds=2.5, output="é" * TAIL_BYTES, error="oh")
    result = result_of(finish, TaskId(103, SEAL), now=50.0, sent_at=40.0, cancelled=False)
    assert result.stdout_bytes == 2 * TAIL_BYTES
    assert (len(result.stdout), result.stderr, result.stderr_bytes) == (TAIL_BYTES, b"oh", 2)
    assert (result.started_at, result.wall_seconds) == (47.5, 2.5)


@pytest.mark.parametrize("requires", [["FOO", "BAR"], "FOO BAR"])
def test_a_job_message_is_a_submission(requires: object) -> None:
    text = {
        "type": "job", "id": "1", "queue": 5, "command": "./run_task.sh",
        "cleanup": "./cleanup.sh", "requires": requires,
    }  # fmt: skip
    line = directions.requests.decode(json.dumps(text))
    assert isinstance(line, SubmitLine)
    request = line.submission()
    assert (request.id, request.spec.notify) == ("1", Notify.ALWAYS)
    spec = request.spec
    assert (spec.count, spec.first, spec.requires) == (5, 0, ("FOO", "BAR"))
    assert spec.program.argv == ("/bin/sh", "-c", './run_task.sh "$KESTREL_TASK_ID"')
    assert spec.program.cleanup == ("/bin/sh", "-c", './cleanup.sh "$KESTREL_TASK_ID"')


def test_a_chat_message_can_carry_every_message() -> None:
    text = codec.encode_for_chat(Finish(id="\x7f\ufffe\uffff\x00"))
    assert not set(text) & set("\x7f\ufffe\uffff\x00")
    assert json.loads(text)["id"] == "\x7f\ufffe\uffff\x00"
