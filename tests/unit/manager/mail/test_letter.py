"""What a mail about ends of jobs says, and of which ends there is one."""

from __future__ import annotations

import email
from email import policy
from typing import Any

import pytest
from poolkit import PoolDriver
from store_samples import failed, job

from kestrelctl.core.events import SetUser
from kestrelctl.core.jobs.job import is_worth_a_mail
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.manager.mail.letter import letter

NOW = 1_700_000_200.0


def ended(job_id: int = 7, name: str = "fit", **changes: Any) -> JobRecord:
    fields: dict[str, Any] = {
        "spec": JobSpec(program=Program(argv=("true",)), count=4, name=name),
        "submitted_at": 1_700_000_000.0, "ended_at": 1_700_000_120.0,
        "state": "failed", "counts": Counts(done=3, failed=1),
    }  # fmt: skip
    return job(job_id, **(fields | changes))


def written(
    *records: JobRecord,
    bad: dict[int, TaskRecord] | None = None,
    items: dict[int, str] | None = None,
    pool: str = "lab",
) -> Any:
    """The mail as its receiver's program reads it."""
    message = letter(
        records,
        bad or {},
        items=items or {},
        pool=pool,
        sender="kestrel@pool.org",
        to="ada@example.org",
        now=NOW,
    )
    data = message.as_bytes()
    assert data.isascii()
    assert max(map(len, data.split(b"\r\n"))) <= 998
    return email.message_from_bytes(data, policy=policy.default)


def test_it_tells_what_failed_first_and_how_to_look_further() -> None:
    mail = written(ended(), bad={7: failed(2, 7)})
    assert mail["Subject"] == "lab: job 7 fit: failed"
    lines = mail.get_content().splitlines()
    assert lines[0].startswith('job 7 "fit" failed: 3 done, 1 failed in ')
    assert lines[1].startswith("  task 2 failed")
    assert lines[2] == "  kestrelctl --pool lab job logs 7 2"
    assert lines[-1] == "To look further: kestrelctl --pool lab job info 7"


def test_it_tells_the_item_of_a_task_that_failed() -> None:
    mail = written(ended(), bad={7: failed(2, 7)}, items={7: "two\nwords"})
    lines = mail.get_content().splitlines()
    assert lines[2:4] == ["  its item: two words", "  kestrelctl --pool lab job logs 7 2"]


def test_what_is_cut_says_so() -> None:
    mail = written(ended(), bad={7: failed(2, 7)}, items={7: "x" * 4000})
    assert f"  its item: {'x' * 400}…" in mail.get_content().splitlines()


def test_every_command_in_it_names_the_pool_that_sent_it() -> None:
    for mail in (written(ended(), bad={7: failed(2, 7)}), written(ended(), ended(8))):
        text = mail.get_content()
        assert text.count("kestrelctl ") == text.count("kestrelctl --pool lab ") >= 2
    odd = written(ended(), pool="my pool")
    assert "kestrelctl --pool 'my pool' job info 7" in odd.get_content()


def test_no_automatic_answer_comes_back() -> None:
    mail = written(ended())
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"] == "Tue, 14 Nov 2023 22:16:40 +0000"


def test_of_several_jobs_those_that_failed_come_first() -> None:
    good = ended(3, state="done", counts=Counts(done=4))
    mail = written(good, ended(5), ended(9))
    assert mail["Subject"] == "lab: 3 jobs ended: 1 done, 2 failed"
    lines = [line for line in mail.get_content().splitlines() if line.startswith("job ")]
    assert [line.split()[1] for line in lines] == ["5", "9", "3"]


def test_the_name_of_a_job_makes_no_header_and_no_line() -> None:
    mail = written(ended(name="x\r\nBcc: eve@example.org\n\nhello" + "n" * 200))
    assert mail["Bcc"] is None
    assert "\nBcc" not in mail.get_content()
    assert mail["Subject"].startswith("lab: job 7 x  Bcc: eve@example.org  hellonnn")
    assert len(mail["Subject"]) < 120


def test_names_in_any_script_travel() -> None:
    mail = written(ended(name="Größe 大きさ"))
    assert mail["Subject"] == "lab: job 7 Größe 大きさ: failed"
    assert '"Größe 大きさ"' in mail.get_content()


def test_sent_twice_it_is_known_for_the_same() -> None:
    assert written(ended())["Message-ID"] == written(ended())["Message-ID"]
    again = ended(ended_at=1_700_000_180.0)
    assert written(ended())["Message-ID"] != written(again)["Message-ID"]


@pytest.mark.parametrize(
    ("outcome", "took_seconds", "cancelled", "worth"),
    [
        ("failed", 1.0, False, True),
        ("failed", 1.0, True, False),
        ("done", 60.0, False, False),
        ("done", 60.5, False, True),
        ("cancelled", 3600.0, True, False),
    ],
)
def test_what_went_wrong_or_took_long_is_worth_a_mail(
    outcome: str, took_seconds: float, cancelled: bool, worth: bool
) -> None:
    assert is_worth_a_mail(outcome, took_seconds=took_seconds, cancelled=cancelled) is worth


@pytest.mark.parametrize(("mail", "unmailed"), [("ada@example.org", True), ("", False)])
def test_the_end_of_a_job_is_to_be_mailed_to_who_has_an_address(mail: str, unmailed: bool) -> None:
    driver = PoolDriver()
    job_id = driver.submit(deadline_seconds=3.0)
    owner = driver.pool.state.jobs[job_id].owner
    set_user = SetUser(
        at=driver.now, cause=owner, request="r", name=owner, change=ShareChange(), mail=mail
    )
    driver.tell(set_user)
    driver.wait(4.0)
    [row] = [each for each in driver.records if isinstance(each, JobRecord) and each.ended_at]
    assert row.unmailed is unmailed
