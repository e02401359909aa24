"""The program that a worker runs for a task: one value from the submission to the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.exits import Exits
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.task_environment import TaskEnvironment

#: The longest command, in characters, in the head of a program.
HEAD_CHARACTERS = 1_000


class Program(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The program that a worker runs for each task of a job.

    It is part of the job's spec, of the template that workers are sent, of the command that an
    executor starts and of the job that runs a guest, and nobody copies its fields. How often, where
    and when a task is tried is up to the job.

    Attributes:
        argv: the command.
        placeholders: how those in its commands are read.
        env: variables beside those that Kestrel sets.
        cleanup: a second command, which runs after the first in the same directory and environment.
            Its failure is a reason in the report and changes no exit code.
        time_limit_seconds: after it the command is asked to end, and soon made to; None for no
            limit.
        workdir: absolute path of the directory in which tasks start, on the machines of workers
            that allow it (`core.model.files.workdir`); empty for a scratch directory of each task.
        inputs: files that each task finds in its scratch directory.
        parent_files: what tasks of the job's parents left; each task finds that there, too.
        stdin: the file that each task reads as its standard input; None for an empty one.
        outputs: globs of the files in scratch directories of tasks that come home
            (`core.model.files.outputs`).
        output_to: the address to which workers write these instead of into the file share; empty
            for that (`core.model.files.addresses`).
        stages: commands before and after that of the job (`core.model.job.stage`).
        checkpoints: globs of the files there from which a task goes on in its next attempt.
        checkpoint_seconds: how often these are stored; None for the usual.
        checkpoint_exit: the exit code by which a task says that it goes on later; None for none
            (`core.model.job.checkpoint`).
        success_exits: exit codes that are a success; none named: 0.
        stop_signal, stop_grace_seconds: what asks a task to end, without `SIG`, and how long before
            it is made to; `core.model.job.ending_rules` has the defaults.
        join: what a task writes to standard error goes into its standard output.
        keep_logs: what a task prints goes into the file share if its result has no room for it.
        environment: inside which its tasks run; None for that of their worker.
        channel: the job's owner may write to its running tasks, and they to him
            (`core.model.job.channel_rules`).
    """

    argv: tuple[str, ...]
    placeholders: Placeholders = Placeholders.ALWAYS
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cleanup: tuple[str, ...] = ()
    time_limit_seconds: float | None = None
    workdir: str = ""
    inputs: tuple[Input, ...] = ()
    parent_files: tuple[ParentFiles, ...] = ()
    stdin: Input | None = None
    outputs: tuple[str, ...] = ()
    output_to: str = ""
    stages: tuple[Stage, ...] = ()
    checkpoints: tuple[str, ...] = ()
    checkpoint_seconds: float | None = None
    checkpoint_exit: int | None = None
    success_exits: Exits = ()
    stop_signal: str = ""
    stop_grace_seconds: float | None = None
    join: bool = False
    keep_logs: bool = False
    environment: TaskEnvironment | None = None
    channel: bool = False

    @property
    def is_one_process(self) -> bool:
        """Whether nothing has to be done for a task before and after its command."""
        return not (
            self.cleanup
            or self.inputs
            or self.parent_files
            or self.stdin
            or self.outputs
            or self.stages
            or self.checkpoints
            or self.keep_logs
            or self.environment
            or self.channel
        )

    def commands(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Its commands, each with its name."""
        yield "command", self.argv
        yield "cleanup", self.cleanup
        for stage in self.stages:
            yield f"stage {stage.name}", stage.argv

    def cut(self, characters: int = HEAD_CHARACTERS) -> Program:
        """Returns the program without its variables, and with the first words of its commands.

        It has all else, by which a pool decides. Nothing can be run from it.

        Args:
            characters: how much is kept of each command.
        """
        return msgspec.structs.replace(
            self,
            argv=tuple(cut_words(self.argv, characters)),
            env={},
            cleanup=tuple(cut_words(self.cleanup, characters)),
            stages=tuple(
                msgspec.structs.replace(stage, argv=tuple(cut_words(stage.argv, characters)))
                for stage in self.stages
            ),
        )

    def head(self, characters: int = HEAD_CHARACTERS) -> Program:
        """Returns the part that lists show: some kilobytes, however long its parts are.

        It has no inputs, variables and cleanup, and no recipe; a long command, also of a stage, is
        cut. Nothing can be run from it.

        Args:
            characters: how much is kept of what is long.
        """
        return msgspec.structs.replace(
            self.cut(characters),
            inputs=(),
            parent_files=(),
            stdin=None,
            cleanup=(),
            outputs=tuple(cut_words(self.outputs, characters)),
            checkpoints=tuple(cut_words(self.checkpoints, characters)),
            environment=self.environment and msgspec.structs.replace(self.environment, recipe=""),
        )


def cut_words(words: Iterable[str], characters: int) -> list[str]:
    """The first words, with a space after each, up to so many characters; `…` where it is cut."""
    kept: list[str] = []
    for word in words:
        if len(word) >= characters:
            kept.append(word[:characters] + "…")
            break
        kept.append(word)
        characters -= len(word) + 1
    return kept
