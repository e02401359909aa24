"""What a notebook shows at the end of a cell."""

from __future__ import annotations

from typing import Any

from cli_fake_pool import CONTEXT, JOB, FakePool
from msgspec.structs import replace

from kestrelctl.client.blocking import Client
from kestrelctl.client.notebook import JobTable, job_html
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.errors import Unreachable
from kestrelctl.protocol import answers as an

HALF = replace(
    JOB, job_id=7, name="sweep", state="active", tasks=100, waiting=40, running=10, done=45,
    failed=5, lost=0, cancelled=0, hold=None,
)  # fmt: skip


def client(**answers: Any) -> Client:
    return Client(opens=FakePool(**answers).open, finds=lambda _: CONTEXT)


def test_a_job_is_shown_as_it_is_now() -> None:
    with client(ListJobs=an.Jobs(id="", jobs=[HALF])) as pool:
        shown = pool.job(7)._repr_html_()
    assert shown == (
        '<progress value="50" max="100"></progress> job 7 <b>sweep</b> is active: '
        "40 waiting, 10 running, 45 done, 5 failed"
    )


def test_names_of_jobs_are_no_html() -> None:
    spiteful = replace(HALF, name="<script>alert(1)</script>")
    for shown in (job_html(spiteful), JobTable([spiteful])._repr_html_()):
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown


def test_jobs_are_a_list_and_a_table() -> None:
    held = replace(HALF, job_id=8, hold=Hold(by="ada@x", at=1.0, reason=""))
    with client(ListJobs=an.Jobs(id="", jobs=[HALF, held])) as pool:
        jobs = pool.jobs()
    assert [each.job_id for each in jobs] == [7, 8]
    shown = jobs._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<td>on hold</td>" in shown


def test_a_pool_is_shown_by_its_workers_and_what_there_is_to_do() -> None:
    with client() as pool:
        shown = pool._repr_html_()
    assert f"pool <b>{CONTEXT.name}</b>: workers: " in shown
    assert "tasks wait" in shown


def test_a_pool_that_cannot_be_asked_is_no_error_in_a_notebook() -> None:
    with client(ListJobs=Unreachable("away")) as pool:
        assert pool.job(7)._repr_html_() == "&lt;job 7&gt;"


def test_a_client_that_is_closed_is_shown_by_its_name() -> None:
    with client() as pool:
        job = pool.job(7)
    assert job._repr_html_() == "&lt;job 7&gt;"
    assert "Client" in pool._repr_html_()
