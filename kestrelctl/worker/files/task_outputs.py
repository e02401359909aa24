"""Stores what a task has left when its command has ended: for its owner, or its next attempt."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from msgspec.structs import replace

from kestrelctl.core.model.end_reason import EndKind, ReasonText, ended_by_itself, with_remark
from kestrelctl.worker.files.checkpoint_ends import (
    globs_to_store,
    in_words_of_checkpoints,
    will_go_on,
    with_stored,
)
from kestrelctl.worker.files.output_archive import OutputsRefused
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.run.attempt_state import AttemptState
from kestrelctl.worker.run.executor import Completion

log = logging.getLogger(__name__)


async def store_outputs(
    run: AttemptState, completion: Completion, stage: OutputStage | None
) -> Completion:
    """Stores what an attempt left; returns how it has ended when that is stored, or is not.

    A cancel ends it with the reason of the run.

    Args:
        completion: its end so far.
        stage: stores it; None where that is not possible.
    """
    command, number, began = run.command, completion.number, time.monotonic()
    before = completion
    try:
        if stage is None:
            raise OutputsRefused(EndKind.OUTPUTS_FAILED, "this worker cannot store files")
        scratch = run.sandbox.open_scratch()
        try:
            globs = globs_to_store(command, completion)
            has_ended = not will_go_on(command, completion)
            if has_ended and command.program.output_to:
                packed = await stage.write(
                    number,
                    scratch,
                    globs,
                    command.program.output_to,
                    command.owner,
                    inputs=command.links,
                )
                completion = replace(completion, output_files=packed.files)
                left_out = packed.left_out
            else:
                left = await stage.store(
                    number, scratch, globs, inputs=command.links, every_glob=has_ended
                )
                completion = with_stored(command, completion, left)
                left_out = left.left_out
            completion = _with_remark(completion, left_out)
        finally:
            os.close(scratch)
    except OutputsRefused as error:
        completion = replace(completion, reason=error.reason)
    except OSError as error:
        completion = replace(completion, reason=EndKind.OUTPUTS_FAILED.text(str(error.strerror)))
    except asyncio.CancelledError:
        completion = replace(completion, reason=run.reason)
    except Exception as error:
        log.exception("attempt %d: its outputs", number)
        completion = replace(completion, reason=EndKind.OUTPUTS_FAILED.text(repr(error)))
    completion = in_words_of_checkpoints(command, before, completion)
    return replace(completion, stored_seconds=time.monotonic() - began)


def _with_remark(completion: Completion, left_out: ReasonText) -> Completion:
    """Adds a remark to the reason of an end; what was asked to stop keeps that reason alone."""
    if not left_out:
        return completion
    log.warning("attempt %d: %s", completion.number, left_out)
    if not ended_by_itself(completion.reason):
        return completion
    return replace(completion, reason=with_remark(completion.reason, left_out))
