"""The lowest rung: an ordinary process of the worker's user."""

from __future__ import annotations

from kestrelctl.worker.isolation.rung import Ending, Start
from kestrelctl.worker.launch.launcher import Launch, Tree
from kestrelctl.worker.run.process_tree import descendants


class Plain:
    """Keeps nothing from the task. What it leaves behind ends up with the launcher, which kills
    it."""

    name = "plain"
    tree = Tree.GROUP
    has_kernel_limits = False
    hides_files = False

    def shows(self, path: str) -> bool:
        return True

    def launch(self, place: str, start: Start) -> Launch:
        return Launch(start.program, start.argv, start.env)

    def processes(self, pid: int, most: int) -> list[int]:
        return [pid, *descendants(pid, most)]

    def memory_files_bytes(self, pid: int) -> int:
        return 0

    def ended(self, place: str, code: int, *, asked: bool) -> Ending:
        return Ending(code)
