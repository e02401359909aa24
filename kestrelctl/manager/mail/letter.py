"""The mail that tells a user of ends of his jobs."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime

from kestrelctl.chat.sentences import notice
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.core.model.wording import one_line, plural
from kestrelctl.manager.views import cut_item

#: The most characters of a name in a subject.
_MOST_CHARACTERS = 80
#: The most characters of why a task ended, and of its item.
_MOST_OF_A_TASK = 400
#: Plain ASCII on the way, whatever the names are: not every server takes more.
_POLICY = policy.SMTP.clone(cte_type="7bit")


def letter(
    records: Sequence[JobRecord],
    bad_tasks: dict[int, TaskRecord],
    *,
    items: dict[int, str],
    pool: str,
    sender: str,
    to: str,
    now: float,
) -> EmailMessage:
    """Makes a mail with a line for each job, failed ones first.

    Sent again with the same jobs it has the same id, by which programs know it for the same.

    Args:
        records: one or more.
        bad_tasks: of jobs that failed, the first task that did, by job id; some may lack.
        items: those of the bad tasks, by job id.
        pool: as its users name it to commands.
        now: seconds since the epoch.
    """
    message = EmailMessage(policy=_POLICY)
    message["From"] = sender
    message["To"] = to
    message["Subject"] = f"{one_line(pool)}: {_subject(records)}"
    message["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
    message["Message-ID"] = f"<{_digest(records)}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's absence answers it
    ordered = sorted(records, key=lambda record: (record.state == "done", record.job_id))
    parts = [
        _about(record, bad_tasks.get(record.job_id), items.get(record.job_id), pool)
        for record in ordered
    ]
    message.set_content("\n".join([*parts, "", _further(records, pool)]) + "\n")
    return message


def command(pool: str, words: str) -> str:
    """Makes a command as a receiver types it, who may have several pools.

    Args:
        pool: as its users name it to commands.
        words: the words after the program's name.
    """
    return f"kestrelctl --pool {shlex.quote(one_line(pool))} {words}"


def _subject(records: Sequence[JobRecord]) -> str:
    if len(records) == 1:
        [record] = records
        name = one_line(record.spec.name)[:_MOST_CHARACTERS]
        return f"job {record.job_id}{f' {name}' if name else ''}: {record.state}"
    states = [record.state for record in records]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in sorted(set(states)))
    return f"{plural(len(records), 'job')} ended: {counts}"


def _digest(records: Sequence[JobRecord]) -> str:
    ends = ",".join(f"{record.job_id}:{record.ended_at}" for record in records)
    return hashlib.sha256(ends.encode()).hexdigest()[:32]


def _about(record: JobRecord, bad: TaskRecord | None, item: str | None, pool: str) -> str:
    text = notice(record, None)
    if bad is None:
        return text
    task_id = record.spec.task_id(bad.index)
    why = ""
    if bad.result is not None:
        result = bad.result
        why = _short(how_it_ended(result.reason, result.signal, result.exit_code or 0))
    lines = [text, f"task {task_id} {bad.state.value}{f': {why}' if why else ''}"]
    if item is not None:
        lines.append(f"its item: {_short(item)}")
    lines.append(command(pool, f"job logs {record.job_id} {task_id}"))
    return "\n  ".join(lines)


def _short(text: str) -> str:
    return cut_item(one_line(text), _MOST_OF_A_TASK)


def _further(records: Sequence[JobRecord], pool: str) -> str:
    if len(records) == 1:
        return f"To look further: {command(pool, f'job info {records[0].job_id}')}"
    info, tasks = command(pool, "job info JOB"), command(pool, "job tasks JOB --state failed")
    return f"To look further: {info}, {tasks}"
