"""Counts the modules of kestrelctl that run from `submit` to `job logs`, in all processes.

    python tests/walk/modules_entered.py           the number
    python tests/walk/modules_entered.py --list    their names, by process

A pool of one worker is started for it. What is imported and does not run does not count, nor does
what starts the pool. Timers that happen to run meanwhile do.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: Python imports this at its start wherever it lies on the path.
WATCHER = """
import atexit, json, os, signal, sys, threading

seen = set()
importing = 0

def watch(frame, event, argument):
    global importing
    if frame.f_code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and importing <= 0:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("kestrelctl"):
            seen.add(name)

def write(*_):
    file = os.path.join(os.environ["KESTREL_WALK"], f"{os.getpid()}.json")
    with open(f"{file}.new", "w") as out:
        json.dump({"command": sys.argv, "modules": sorted(seen)}, out)
    os.replace(f"{file}.new", file)

signal.signal(signal.SIGUSR1, lambda *_: seen.clear())
signal.signal(signal.SIGUSR2, write)
write()
atexit.register(write)
threading.setprofile(watch)
sys.setprofile(watch)
"""
#: Within this time a process has done what a signal asks.
SIGNAL_SECONDS = 2.0


def walk() -> dict[str, list[str]]:
    """The modules that ran, by the command line of their process."""
    with tempfile.TemporaryDirectory() as directory:
        found, home = Path(directory, "found"), Path(directory, "home")
        found.mkdir()
        home.mkdir()
        Path(directory, "sitecustomize.py").write_text(WATCHER, encoding="utf-8")
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("KESTREL_")},
            "HOME": str(home),
            "XDG_STATE_HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
            "KESTREL_WALK": str(found),
            "PYTHONPATH": f"{directory}:{Path(__file__).parents[2]}",
        }

        def kestrelctl(*words: str) -> None:
            command = [sys.executable, "-m", "kestrelctl", *words]
            subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

        kestrelctl("up", "--pool", "walk", "--workers", "1")
        try:
            daemons = [int(file.stem) for file in found.glob("*.json")]
            daemons = [pid for pid in daemons if is_alive(pid)]
            time.sleep(SIGNAL_SECONDS)  # what follows the start is over
            tell(daemons, signal.SIGUSR1)
            before = set(found.iterdir())
            kestrelctl("submit", "--pool", "walk", "--", "true")
            kestrelctl("job", "wait", "--pool", "walk")
            kestrelctl("job", "logs", "--pool", "walk")
            tell(daemons, signal.SIGUSR2)
            files = [*(found / f"{pid}.json" for pid in daemons), *set(found.iterdir()) - before]
            told = [json.loads(file.read_text(encoding="utf-8")) for file in files]
            return {" ".join(each["command"]): each["modules"] for each in told}
        finally:
            kestrelctl("down", "--pool", "walk", "--delete", "--yes")


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    return Path(f"/proc/{pid}").exists()


def tell(pids: list[int], what: signal.Signals) -> None:
    """Signals processes, and gives them time to hear it."""
    for pid in pids:
        os.kill(pid, what)
    time.sleep(SIGNAL_SECONDS)


if __name__ == "__main__":
    by_process = walk()
    if "--list" in sys.argv[1:]:
        for command, modules in by_process.items():
            print(f"{command}\n  " + "\n  ".join(modules))
    print(len({module for modules in by_process.values() for module in modules}))
