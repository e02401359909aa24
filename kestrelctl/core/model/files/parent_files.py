"""Files that tasks left for the tasks of jobs that wait for them: what such a job says of them.

A task finds these files in a directory of its scratch directory, by a link to what its worker has
fetched and keeps, as with inputs. Their place in the pool's file share is known when the parents
have ended, so the worker asks the pool for it before the task starts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kestrelctl.core.model.files.inputs import MOST_INPUTS, Input, problem_with_input_name
from kestrelctl.core.model.job.after import After, WantedEnd

#: The tag of workers that ask for files of parents. Nobody else can give it.
TAG = "parent-files"


class ParentFiles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files that the tasks of one parent left.

    Attributes:
        name: of the directory in which a task finds them: those of task 7 in its directory `7`.
        job_id: of the parent; or its place, from 0, among jobs that are submitted as one, as
            `placed` says.
        placed: whether `job_id` is such a place.
        each: only what the parent's task of the same place left: tasks wait for these one for one.
    """

    name: str
    job_id: int
    placed: bool = False
    each: bool = False


def located(files: Sequence[ParentFiles], first: int) -> tuple[ParentFiles, ...]:
    """The same files with ids of jobs instead of places.

    Args:
        first: the id of the first of the jobs that were submitted as one.
    """
    return tuple(
        msgspec.structs.replace(each, job_id=each.job_id + first, placed=False)
        if each.placed
        else each
        for each in files
    )


def problem_with_parent_files(
    files: Sequence[ParentFiles], inputs: Sequence[Input], workdir: str
) -> str | None:
    """The first thing wrong with the files of parents that a job wants; None if all is well.

    Args:
        inputs: what else it finds in its scratch directory.
        workdir: where its tasks start; empty for scratch directories.
    """
    if not files:
        return None
    if workdir:
        return "files of other jobs are put into scratch directories, and these tasks have none"
    if len(files) + len(inputs) > MOST_INPUTS:
        return f"a job has up to {MOST_INPUTS} inputs, not {len(files) + len(inputs)}"
    names = {each.name for each in inputs}
    for each in files:
        problem = problem_with_input_name(each.name)
        if problem:
            return problem
        if each.name in names:
            return f"two inputs are called {each.name!r}"
        names.add(each.name)
        if each.job_id < (0 if each.placed else 1):
            return f"there is no job {each.job_id}"
    return None


def not_waited_for(
    files: Sequence[ParentFiles], after: Sequence[After], after_each: int | None
) -> int | None:
    """The first job whose files are wanted, but that is not waited for; None if there is none.

    Args:
        after: what is waited for, with a good end or any.
        after_each: the job for whose tasks the tasks wait, one for one.
    """
    waited = [each for each in after if each.ending is not WantedEnd.FAILED]
    for each in files:
        if each.each:
            if each.job_id != after_each:
                return each.job_id
        elif not any(one.first <= each.job_id <= one.last for one in waited):
            return each.job_id
    return None
