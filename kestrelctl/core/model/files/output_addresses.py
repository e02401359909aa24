"""Addresses to which workers themselves write what tasks leave.

This module decides what an address may say; the worker checks where it may lead. Not every worker
may write to an address: a worker that may advertises a tag.
"""

from __future__ import annotations

from kestrelctl.core.model.files.input_addresses import is_address, problem_with_address
from kestrelctl.core.model.job.program import Program

#: The tag of workers that write to `file:` addresses. Nobody else can give it.
FILE_TAG = "output-to-file"


def problem_with_output_address(program: Program) -> str | None:
    """Says what is wrong with a program's output address, for its user; None if all is well.

    Args:
        program: all is well if it has no such address.
    """
    address = program.output_to
    if not address:
        return None
    if not program.outputs:
        return "it says where files of tasks go, and not which: --keep GLOB does"
    if not is_address(address):
        return f"{address[:80]!r} is no address: files go to one, as in file:///shared/results"
    protocol = address.partition(":")[0].lower()
    if protocol in ("http", "https"):
        return "nothing says how files are written by https: they go to a file: address"
    if protocol != "file":
        return "files of tasks go to file: addresses only"
    return problem_with_address(address)


def place_of(address: str, task_id: int) -> str:
    """Returns the address to which the files of one task go."""
    return f"{address.rstrip('/')}/{task_id}"
