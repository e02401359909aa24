"""The rules of a job for the checkpoints that its tasks write themselves.

HTCondor calls that self-checkpointing: `checkpoint_exit_code` and `transfer_checkpoint_files`
(condor_submit). Not every worker can store files and give them back: a worker that can advertises a
tag, and a job with checkpoints asks for it like for any other.
"""

from __future__ import annotations

from kestrelctl.core.model.files.output_globs import MOST_GLOBS, problem_with_glob
from kestrelctl.core.model.job.exits import MAX_EXIT_CODE
from kestrelctl.core.model.job.program import Program

#: The tag of workers that store checkpoints and give them back. Nobody else can give it.
TAG = "checkpoints"

LEAST_SECONDS = 1.0
MOST_SECONDS = 7 * 86_400.0


def problem_with_checkpoints(program: Program) -> str | None:
    """Says what is wrong with a program's checkpoints, for its user; None if all is well."""
    if not program.checkpoints:
        if program.checkpoint_exit is None and program.checkpoint_seconds is None:
            return None
        return "say which files are a checkpoint: --checkpoint GLOB"
    seconds, code = program.checkpoint_seconds, program.checkpoint_exit
    checks = (
        (
            len(program.checkpoints) <= MOST_GLOBS,
            f"a job names at most {MOST_GLOBS} checkpoint files, not {len(program.checkpoints)}",
        ),
        (
            not program.workdir,
            "checkpoints are what tasks write into their scratch directories: these start in "
            f"{program.workdir[:80]!r}, and what they write there stays there",
        ),
        (
            seconds is None or LEAST_SECONDS <= seconds <= MOST_SECONDS,
            "between two checkpoints are 1 second to 7 days",
        ),
        (
            code is None or 1 <= code <= MAX_EXIT_CODE,
            f"an exit code that says that a program goes on is 1 to {MAX_EXIT_CODE}, not {code}",
        ),
        (
            code is None or not any(low <= code <= high for low, high in program.success_exits),
            f"exit code {code} cannot say both that a task is done and that it goes on",
        ),
    )
    problem = next((text for fine, text in checks if not fine), None)
    globs = map(problem_with_glob, program.checkpoints)
    return problem or next(filter(None, globs), None)
