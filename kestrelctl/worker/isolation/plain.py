"""The lowest rung: an ordinary process of the worker's user."""

from __future__ import annotations

from kestrelctl.worker.isolation.rung import Ending, Launch, Start
from kestrelctl.worker.run.orphans import kill, kill_group
from kestrelctl.worker.run.process_tree import descendants

_ROUNDS = 20
"""How often what a task has started is looked for again while it is being killed."""
_MANY = 100_000


class Plain:
    """Nothing is kept from the task. What it leaves behind ends up with the worker, which kills it
    (`orphans.py`)."""

    name = "plain"
    has_kernel_limits = False
    group_has_grace = True
    hides_files = False

    def shows(self, path: str) -> bool:
        return True

    def launch(self, place: str, start: Start) -> Launch:
        return Launch(start.program, start.argv, start.env)

    def signal(self, pid: int, number: int) -> None:
        kill_group(pid, number)

    def kill(self, pid: int) -> None:
        # Its group first: within that a signal reaches also what is being forked. The leader stays
        # the worker's child until it is reaped, but what it had started is the worker's then.
        others = descendants(pid, _MANY)
        kill_group(pid)
        for _ in range(_ROUNDS):
            if not others:
                break
            below = [child for each in others for child in descendants(each, _MANY)]
            for each in others:
                kill(each)
            others = below

    def processes(self, pid: int, most: int) -> list[int]:
        return [pid, *descendants(pid, most)]

    def memory_files_bytes(self, pid: int) -> int:
        return 0

    def left_behind(self, place: str) -> int:
        return 0

    def ended(self, place: str, code: int, *, asked: bool) -> Ending:
        return Ending(code)
