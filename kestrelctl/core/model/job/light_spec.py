"""The part of a job's spec by which all is decided: what only workers need lies in the store alone.

Items and the words of a long program weigh ten times as much in memory as on disk, and no decision
depends on them.
"""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.job.placeholders import read_otherwise_before
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec

#: A program whose texts take more memory than so many bytes is long.
LONG_PROGRAM_BYTES = 16 * 1024
#: The memory of a text beside its characters: the head of a string, and its place in a tuple.
TEXT_BYTES = 64


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a light spec lacks.

    Attributes:
        spec_bytes: the size of the whole spec as JSON.
        items: whether the job has items.
        program: whether the texts of its program are cut.
    """

    spec_bytes: int
    items: bool
    program: bool


def is_long(spec: JobSpec) -> bool:
    """Whether a light spec has only the head of the job's program.

    That of a guest is never long: a loan goes on with it after a restart. Nor is one whose braces
    decide which workers can run it.
    """
    if spec.guest is not None:
        return False
    program = spec.program
    env = program.env
    words = [word for _, words in program.commands() for word in words]
    texts = len(words) + 2 * len(env)
    characters = sum(map(len, words)) + sum(map(len, env)) + sum(map(len, env.values()))
    if texts * TEXT_BYTES + characters <= LONG_PROGRAM_BYTES:
        return False
    return not read_otherwise_before(words, program.placeholders)


def lightened(spec: JobSpec) -> JobSpec:
    """Returns the light spec of a job; a spec without items and a long program is light already."""
    if is_long(spec):
        return msgspec.structs.replace(spec, items=None, program=spec.program.cut())
    return spec if spec.items is None else msgspec.structs.replace(spec, items=None)


def whole_program(light: Program, stored: Program) -> Program:
    """Returns a program with its texts, as a pool runs it.

    Args:
        light: as the pool has it: it may keep what tasks print though the job does not ask for it.
        stored: the same as submitted.
    """
    return msgspec.structs.replace(stored, keep_logs=light.keep_logs)
