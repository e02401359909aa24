"""Addresses to which workers themselves write what tasks leave.

What is written here decides what an address may say; where it may lead is the worker's to check.
Not every worker may write anywhere: those that may advertise a tag.
"""

from __future__ import annotations

from kestrelctl.core.model.files.input_addresses import is_address, problem_with_address
from kestrelctl.core.model.job.program import Program

#: What a worker advertises that writes to `file:` addresses. Nobody else can give it.
FILE_TAG = "output-to-file"


def problem_with_output_address(program: Program) -> str | None:
    """What is wrong with where a program's files go, in words for its user; None if all is well.

    Args:
        program: without an address there is nothing to say.
    """
    address = program.output_to
    if not address:
        return None
    if not program.outputs:
        return "it says where files of tasks go, and not which: --output GLOB does"
    if not is_address(address):
        return f"{address[:80]!r} is no address: files go to one, as in file:///shared/results"
    protocol = address.partition(":")[0].lower()
    if protocol in ("http", "https"):
        return "nothing says how files are written by https: they go to a file: address"
    if protocol != "file":
        return "files of tasks go to file: addresses only"
    return problem_with_address(address)


def place_of(address: str, task_id: int) -> str:
    """Where the files of one task go."""
    return f"{address.rstrip('/')}/{task_id}"
