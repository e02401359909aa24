"""Decides whether a command that ended goes on in another attempt, and what is stored then."""

from __future__ import annotations

from msgspec.structs import replace

from kestrelctl.core.model.end_reason import MOVED, EndKind, EndReason, ended_by_itself
from kestrelctl.core.model.job.ending_rules import stop_signal_number
from kestrelctl.worker.files.output_stage import Left
from kestrelctl.worker.run.executor import CommandSpec, Completion

#: The kinds of reasons why a checkpoint is not stored, by those why outputs are not.
_OF_CHECKPOINTS = {
    EndKind.OUTPUTS_MISSING: EndKind.CHECKPOINT_MISSING,
    EndKind.OUTPUTS_TOO_LARGE: EndKind.CHECKPOINT_FAILED,
    EndKind.OUTPUTS_FAILED: EndKind.CHECKPOINT_FAILED,
}


def will_go_on(command: CommandSpec, completion: Completion) -> bool:
    """Whether a command has ended to go on: with the agreed code, or when it was asked to stop for
    that, by its stop signal.

    One that a limit or a user has ended has failed, or is not wanted, whatever its code.
    """
    order = command.checkpoints
    if order is None or order.exit_code is None:
        return False
    said = completion.exit_code == order.exit_code
    if EndReason.of(completion.reason).kind is EndKind.MOVED:
        return said or completion.signal == stop_signal_number(command.program.stop_signal)
    return said and ended_by_itself(completion.reason)


def globs_to_store(command: CommandSpec, completion: Completion) -> tuple[str, ...]:
    """Returns the globs of what is stored of a command that has ended so."""
    order = command.checkpoints
    return (
        order.globs
        if order is not None and will_go_on(command, completion)
        else command.program.outputs
    )


def with_stored(command: CommandSpec, completion: Completion, left: Left) -> Completion:
    """An end with what the command has left."""
    if will_go_on(command, completion):
        return replace(completion, left=left.stored)
    return replace(completion, output_files=left.files, outputs=left.stored)


def in_words_of_checkpoints(
    command: CommandSpec, before: Completion, after: Completion
) -> Completion:
    """Gives the end of a command that goes on, but of which nothing could be stored, a reason of
    its own.

    Args:
        before: as it was before anything was stored.
    """
    if not will_go_on(command, before) or after.left is not None:
        return after
    why = EndReason.of(after.reason)
    if EndReason.of(before.reason).kind is EndKind.MOVED:
        # It was asked to stop: it goes on from what the pool has.
        return after if why.kind is EndKind.CANCELLED else replace(after, reason=MOVED)
    kind = _OF_CHECKPOINTS.get(why.kind)
    return after if kind is None else replace(after, reason=kind.text(why.detail))
