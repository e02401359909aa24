"""The form that submits a job: fields of the first Kestrel, in the grammar of the command line."""

from __future__ import annotations

import click

from kestrelctl.chat import typed_words
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.job.task_array import TaskArray
from kestrelctl.core.model.validate import MAX_TASKS
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_options import click_options
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.grammar.described_job import job_of
from kestrelctl.grammar.job_options import OPTIONS
from kestrelctl.protocol.forms import Field

FIELDS = (
    Field("command", "Command; {} is the task's id, of several", required=True),
    Field("queue", "Number of tasks, if no array is given", values=("1",)),
    Field("array", "Ids of the tasks: 1-100, 0-9:3 or 1-3,7-9"),
    Field("cleanup", "Command that runs after each task"),
    Field("requirements", "What a worker must have, one tag a line", "text-multi"),
    Field("cpus", "Processors for each task", values=("1",)),
    Field("memory", "Memory for each task, such as 512M or 2G"),
    Field("name", "Name of the job"),
    Field(
        "notify",
        "Send a message when the job ends",
        "list-single",
        (Notify.ALWAYS.value,),
        tuple((each.value, each.value) for each in Notify),
    ),
)
#: Fields that are options of `kestrelctl submit`, or would be.
_OPTIONS = {
    "queue": "queue",
    "array": "array",
    "requirements": "requires",
    "cpus": "cpus",
    "memory": "memory",
    "name": "name",
    "notify": "notify",
}


@click.command("submit", add_help_option=False)
@click.option("--queue", type=WholeNumber(1, MAX_TASKS), default=1)
@click_options(OPTIONS)
def _submit() -> None:
    """Does nothing: only its parameters are used."""


def job_of_form(values: dict[str, list[str]]) -> JobSpec:
    """Makes the job that a filled form asks for; a field left out is as on the command line.

    Raises:
        UsageError: a field holds what it cannot.
    """
    argv = _words("command", values)
    typed_words.check_no_shell(" ".join(values.get("command", ())))
    if not argv:
        raise UsageError("the command is empty")
    words = [
        f"--{option}={value}"
        for field, option in _OPTIONS.items()
        for text in values.get(field, ())
        if (value := text.strip() if field == "name" else typed_words.value(text))
    ]
    context = click.Context(_submit)
    try:
        _submit.parse_args(context, words)
    except UsageError as error:
        # How to write it stands in the form; the hint is about the command line.
        raise UsageError(error.message, cause=error.cause) from None
    except click.BadParameter as error:
        field = error.param.name if error.param else "the form"
        raise UsageError(f"{field}: {error.message}") from None
    options = dict(context.params)
    if options["queue"] > 1:
        options["array"] = options["array"] or TaskArray(count=options["queue"])
    options["cleanup"] = _words("cleanup", values)
    return job_of(argv, options)


def _words(field: str, values: dict[str, list[str]]) -> tuple[str, ...]:
    try:
        return tuple(typed_words.split(" ".join(values.get(field, ()))))
    except UsageError as error:
        raise UsageError(f"{field}: {error.message}", hint=error.hint) from None
