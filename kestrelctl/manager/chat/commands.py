"""Commands in the menus of chat clients (XEP-0050), done by the same requests as everything else.

A command has one form, and no session is kept for it: what a client fills in has all that is
needed. The session's id, which the client repeats, becomes the key of a submission, so that a form
which is sent twice makes one job.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from xml.etree.ElementTree import Element

from kestrelctl.errors import NotFound, UsageError
from kestrelctl.manager.chat.job_form import FIELDS, job_of_form
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import forms
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.forms import COMMANDS, Field, Iq, element

#: The commands of each address, by its name.
COMMANDS_AT: dict[str, tuple[str, ...]] = {
    "jobs": ("submit", "cancel", "job_status"),
    "pool": ("pool_status",),
}
#: The most jobs that a table or a menu shows, the newest; and that one form cancels.
MOST_JOBS = 100
_MOST_SESSION_CHARACTERS = 64
_COLUMNS = (
    "job_id", "owner", "requested", "queued", "pending", "running", "completed", "failed", "state",
)  # fmt: skip

#: A request to the pool, and what makes an element of its answer.
Step = tuple[rq.AnyRequest, Callable[[an.Reply], Element]]


def next_step(iq: Iq, user: str) -> Element | Step:
    """Decides what follows from what a client sends: an answer at once, or something to ask.

    Raises:
        NotFound: there is no such command.
        UsageError: the form does not hold what it must.
    """
    name = iq.to.partition("@")[0]
    if iq.node not in COMMANDS_AT.get(name, ()):
        raise NotFound(f"{iq.to} has no command {iq.node[:100]}")
    session = iq.payload.get("sessionid", "")
    if len(session) > _MOST_SESSION_CHARACTERS:
        raise UsageError("the id of the session is too long")
    action = iq.payload.get("action", "execute")
    if action == "cancel":
        return _command(iq.node, session, "canceled")
    if action not in ("execute", "next", "complete"):
        raise UsageError(f"the command {iq.node} has one form: there is no {action[:20]}")
    values = forms.submitted(iq.payload)
    return _STEPS[iq.node](session, values, user)


def _submit(session: str, values: dict[str, list[str]] | None, _user: str) -> Element | Step:
    if values is None:
        form = forms.form("Submit a job", "It runs on the pool's workers.", FIELDS)
        return _command("submit", secrets.token_hex(12), "executing", form)
    key = f"form-{session}" if session else ""

    def done(answer: an.Reply) -> Element:
        assert isinstance(answer, an.Submitted)
        fields = (
            Field("job_id", "Job", values=(str(answer.job_id),)),
            Field("tasks", "Tasks", values=(str(answer.tasks),)),
        )
        return _command("submit", session, "completed", forms.result("Submitted", fields))

    return rq.SubmitJob(spec=job_of_form(values), key=key), done


def _cancel(session: str, values: dict[str, list[str]] | None, user: str) -> Element | Step:
    if values is None:
        return rq.ListJobs(owner=user, states=["active"], limit=MOST_JOBS), _menu
    jobs = [value.strip() for value in values.get("job_ids", ()) if value.strip()]
    if not jobs or not all(job.isdecimal() and len(job) <= 18 for job in jobs):
        raise UsageError("no job is chosen")
    if len(jobs) > MOST_JOBS:
        raise UsageError(f"one form cancels at most {MOST_JOBS} jobs, not {len(jobs)}")

    def done(answer: an.Reply) -> Element:
        assert isinstance(answer, an.Changed)
        fields = (
            Field("job_ids", "Cancelled", "text-multi", tuple(answer.what)),
            Field("tasks", "Tasks that had not ended", values=(str(answer.tasks),)),
        )
        return _command("cancel", session, "completed", forms.result("Cancelled", fields))

    return rq.CancelJobs(jobs=",".join(jobs)), done


def _menu(answer: an.Reply) -> Element:
    assert isinstance(answer, an.Jobs)
    if not answer.jobs:
        note = element("note", "You have no active jobs.", type="info")
        return _command("cancel", "", "completed", note)
    options = tuple(
        (str(job.job_id), f"{job.job_id}: {job.name or ' '.join(job.spec.program.argv)}"[:80])
        for job in reversed(answer.jobs)
    )
    field = Field("job_ids", "Jobs", "list-multi", options=options, required=True)
    form = forms.form("Cancel jobs", "Tasks that run are ended.", [field])
    return _command("cancel", secrets.token_hex(12), "executing", form)


def _job_status(session: str, _values: dict[str, list[str]] | None, user: str) -> Step:
    def done(answer: an.Reply) -> Element:
        assert isinstance(answer, an.Jobs)
        rows = [_row(job) for job in reversed(answer.jobs)]
        return _command("job_status", session, "completed", forms.table("Jobs", _COLUMNS, rows))

    return rq.ListJobs(owner=user, limit=MOST_JOBS), done


def _row(job: an.JobView) -> tuple[str, ...]:
    """Makes a row; `pending`, between queued and running, was a state in the first Kestrel."""
    ended = job.done + job.failed + job.lost + job.cancelled
    numbers = (job.tasks, job.waiting, 0, job.running, ended, job.failed + job.lost)
    return (str(job.job_id), job.owner, *map(str, numbers), job.state)


def _pool_status(session: str, _values: dict[str, list[str]] | None, _user: str) -> Step:
    def done(answer: an.Reply) -> Element:
        assert isinstance(answer, an.PoolSummary)
        workers = answer.workers
        online = sum(n for state, n in workers.items() if state not in ("offline", "unheard"))
        numbers = {
            "online_workers": online,
            "available_workers": workers.get("idle", 0),
            "busy_workers": workers.get("busy", 0),
            "jobs_active": answer.jobs_active,
            "tasks_waiting": answer.tasks_waiting,
            "tasks_running": answer.tasks_running,
        }
        fields = [
            Field(name, name.replace("_", " ").capitalize(), values=(str(n),))
            for name, n in numbers.items()
        ]
        return _command("pool_status", session, "completed", forms.result("Pool", fields))

    return rq.PoolStatus(), done


_STEPS: dict[str, Callable[[str, dict[str, list[str]] | None, str], Element | Step]] = {
    "submit": _submit,
    "cancel": _cancel,
    "job_status": _job_status,
    "pool_status": _pool_status,
}


def _command(node: str, session: str, status: str, shown: Element | None = None) -> Element:
    """Makes what a client shows of a command: a form, or a note."""
    parts = []
    if status == "executing":
        parts.append(element("actions", element("complete"), execute="complete"))
    if shown is not None:
        parts.append(shown)
    return element(
        "command",
        *parts,
        xmlns=COMMANDS,
        node=node,
        sessionid=session or secrets.token_hex(12),
        status=status,
    )
