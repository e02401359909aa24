"""A message with all that chat programs put around its lines: which commands it holds."""

from __future__ import annotations

import pytest

from kestrelctl.chat import typed_words, words
from kestrelctl.chat.step import NotDone, Step
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool"


def requests(body: str) -> list[rq.AnyRequest]:
    """What a message asks the pool."""
    found = words.read_message(body, ADA)
    assert all(isinstance(each, Step) for each in found), found
    return [each.request for each in found if isinstance(each, Step)]


def refusal(body: str, job_id: int | None = None) -> str:
    """Why nothing is done of a message."""
    [found] = words.read_message(body, ADA, job_id)
    assert isinstance(found, NotDone), found
    return found


@pytest.mark.parametrize(
    ("body", "commands"),
    [
        ("jobs\nstatus", ["jobs", "status"]),
        ("\n\njobs\n \n\nstatus\n", ["jobs", "status"]),
        ("jobs\r\nstatus\u2028workers\vflock", ["jobs", "status", "workers", "flock"]),
        ("submit -- sh -c 'one\ntwo'\njobs", ["submit -- sh -c 'one\ntwo'", "jobs"]),
        ("submit -- sh -c “one\ntwo”\njobs", ["submit -- sh -c 'one\ntwo'", "jobs"]),
        ("submit \\\n  —cpus 2 \\\n  -- true", ["submit   --cpus 2   -- true"]),
        ("> it's done\n> Job 12\nexplain 12", ["explain 12"]),
        ("\u200b> a\n\n> don't\njob 1\njob 2", ["job 1", "job 2"]),
        ("submit -- sh -c 'cat\n> out'", ["submit -- sh -c 'cat\n> out'"]),
        ("```\njobs\nstatus\n```", ["jobs", "status"]),
        ("```sh\njobs\n```", ["jobs"]),
        ("`job 12`", ["job 12"]),
        ("```jobs```", ["jobs"]),
        ("\ufeffjobs\u200b", ["jobs"]),
        ("\u2068job\u2069\u00a012\u200e", ["job 12"]),
        ("\u200cjob\u200d 12\ufe0f\u2061", ["job 12"]),
        (
            "submit -- echo ❤\ufe0f \u06a9\u200c\u0647",
            ["submit -- echo ❤\ufe0f \u06a9\u200c\u0647"],
        ),
        ("submit -- echo 'a\u200bb' \u200bc", ["submit -- echo 'a\u200bb' c"]),
        ("submit -- echo “say “hi” now”", ["submit -- echo 'say \"hi\" now'"]),
        ("", []),
        ("> only\n> quoted", []),
    ],
)
def test_a_message_holds_a_command_a_line(body: str, commands: list[str]) -> None:
    assert typed_words.commands(body) == commands


def test_what_is_found_in_a_message_stays_as_it_is_when_it_is_read_again() -> None:
    for text in ("submit —cpus 2 — echo don’t “a 'b' c”", "submit -- sh -c ‘x “y”’"):  # noqa: RUF001
        [command] = typed_words.commands(text)
        assert typed_words.commands(command) == [command]
        assert typed_words.split(command) == typed_words.split(text)


def test_several_lines_are_several_commands() -> None:
    assert requests("job 12\ncancel 3, 5-9.\nstatus") == [
        rq.ListJobs(jobs="12"),
        rq.CancelJobs(jobs="3,5-9"),
        rq.PoolStatus(),
    ]


def test_nothing_is_done_of_a_message_with_a_line_that_is_not_understood() -> None:
    assert refusal("cancel 12\nsubmit -- ./run\n--fast") == (
        'I do not know "--fast".\nWrite: help\n'
        "That is command 3 of 3 in this message; none of them was done."
    )
    assert "command 2 of 2" in refusal("cancel 12\nsubmit -- echo 'left open")


def test_a_line_behind_a_command_that_may_be_a_quotation_or_for_a_shell_is_refused() -> None:
    for body in ("submit -- cat\n> out.txt", "job 1\n> it's done\njob 2"):
        assert refusal(body).startswith("A line that begins with > stands behind a command")


def test_the_lines_of_a_message_are_bounded() -> None:
    most = typed_words.MOST_COMMANDS
    assert len(requests("status\n" * most)) == most
    assert f"at most {most} lines, not {most + 1}" in refusal("status\n" * (most + 1))


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ("explain 12?", rq.ExplainJob(job="12")),
        ("explain #12 ?!", rq.ExplainJob(job="12")),
        ("kestrelctl job explain 12?", rq.ExplainJob(job="12")),
        ("job 12.", rq.ListJobs(jobs="12")),
        ("logs 12 3?", rq.Logs(job="12", task_id=3)),
        ("cancel 12!", rq.CancelJobs(jobs="12")),
        ("status 12…", rq.ListJobs(jobs="12")),
    ],
)
def test_the_end_of_a_sentence_is_no_part_of_its_last_word(body: str, request_: rq.Request) -> None:
    assert requests(body) == [request_]


def test_the_last_word_of_a_command_that_is_submitted_keeps_its_end() -> None:
    [request] = requests("submit -- echo why?")
    assert isinstance(request, rq.SubmitJob)
    assert request.spec.program.argv == ("echo", "why?")


@pytest.mark.parametrize("job_id", [None, 12])
def test_a_question_cancels_nothing(job_id: int | None) -> None:
    for body in ("cancel 12?", "cancel 12 ?"):
        assert refusal(body, job_id).startswith("A question cancels nothing.\nTo stop it, write: ")
    if job_id:
        assert refusal("cancel?", job_id).endswith("write: cancel")
        assert "This is the address of job 12" in refusal("cancel 7?", job_id)


def test_a_jobs_own_address_hears_questions() -> None:
    for body in ("explain?", "explain 12?", "> it waits\nexplain #12 ?"):
        [found] = words.read_message(body, ADA, 12)
        assert isinstance(found, Step)
        assert found.request == rq.ExplainJob(job="12")


def test_a_message_with_nothing_but_a_quotation_is_told_so() -> None:
    assert refusal("> jobs").startswith("There are no words of yours in this message")


def test_an_apostrophe_that_may_close_a_quotation_is_refused() -> None:
    assert "not clear" in refusal("submit -- echo ‘the dogs’ bone’")  # noqa: RUF001


def test_a_blank_message_asks_for_help() -> None:
    [found] = words.read_message(" \n", ADA)
    assert str(found).startswith("I run jobs.")
