#!/usr/bin/env python3
"""Types the commands of the README and of each reader's first page on fresh Debian hosts."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from console_blocks import Typed, expects_failure, lines_missing, typed

CHECKOUT = Path(__file__).resolve().parents[2]
LAB = CHECKOUT / "tests/lab/lab"
END = "kestrel-walk-step-ended"
STEP_SECONDS = 1800
LONG_STEP_SECONDS = 7200
#: So many of the last lines of a failed step are shown.
SHOWN_LINES = 20
#: What a page takes for granted: a checkout, and pipx where it is named.
SET_UP = "apt-get update -qq && apt-get install -y -qq git pipx >/dev/null 2>&1"
CLONE = "cat >kestrel.bundle && git clone -q -c advice.detachedHead=false kestrel.bundle kestrel"


class Page(NamedTuple):
    """A page, the host on which it is walked, and the directory in which its reader is."""

    path: str
    host: str
    directory: str


READER, OPERATOR, DEPLOYED = "srv", "mgr", "w1"
PAGES = [
    Page("README.md", READER, "kestrel"),
    Page("docs/first-steps.md", READER, "."),
    Page("CONTRIBUTING.md", READER, "kestrel"),
    Page("docs/operations.md", OPERATOR, "kestrel"),
]


class Rule(NamedTuple):
    """Commands that are not typed: pattern, reason, and the option that has them typed."""

    pages: str
    command: str
    reason: str
    option: str = ""


RULES = [
    Rule("", r"kestrel bench --jobs", "takes minutes", "bench"),
    Rule("", r"kestrel test( --\w+)*$", "takes 20 minutes or more", "test"),
    Rule("operations", r"inventory/mine|--pool mine", "needs machines of your own"),
    Rule("operations", r"worker (enroll|join|revoke)|pipx install", "needs a second machine"),
    Rule("operations", r"manager handover|kestrelctl pool status", "needs a second manager"),
    Rule("operations", r"^git pull", "there is nothing newer"),
]
#: A reader who is told to put machines in has one, which is reached by ssh.
PUT_MACHINES_IN = """cat >inventory/mine/hosts.yml <<'HOSTS'
all:
  children:
    xmpp_servers: {{hosts: {{server1: {{ansible_host: {address}, ansible_user: root}}}}}}
    managers: {{hosts: {{server1: }}}}
    workers: {{hosts: {{server1: }}}}
HOSTS"""


def why_not(page: Page, command: str, options: set[str]) -> str:
    """Why a command is not typed; empty if it is."""
    for rule in RULES:
        if rule.pages in page.path and re.search(rule.command, command):
            return "" if rule.option in options else rule.reason
    return ""


class Lab:
    """The hosts of the walk."""

    def __init__(self, name: str, subnet: str) -> None:
        self._lab = [str(LAB), "--name", name, "--subnet", subnet]
        self._addresses: dict[str, str] = {}

    def run(self, *words: str, stdin: bytes | None = None) -> None:
        subprocess.run([*self._lab, *words], input=stdin, check=True)

    def boot(self) -> None:
        """Boots new hosts; the reader's can reach the others by ssh."""
        self.run("down")
        up = [*self._lab, "up", READER, OPERATOR, DEPLOYED]
        said = subprocess.run(up, check=True, stdout=subprocess.PIPE, text=True).stdout
        self._addresses = dict(line.split() for line in said.splitlines())
        for name in ("id", "known_hosts"):
            content = (LAB.parent / ".state" / name).read_bytes()
            kept = {"id": "id_ed25519"}.get(name, name)
            self.run("ssh", READER, f"umask 077; cat >.ssh/{kept}", stdin=content)

    def address(self, host: str) -> str:
        """The address of a host that is there."""
        return self._addresses[host]

    @contextmanager
    def terminal(self, host: str) -> Iterator[Terminal]:
        """A new login shell on a host."""
        command = [*self._lab, "ssh", host, "bash", "-l"]
        shell = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, errors="replace"
        )
        try:
            yield Terminal(shell)
        finally:
            if shell.stdin:
                shell.stdin.close()
            shell.wait()


class Terminal:
    """A shell in which one command after the other is typed."""

    def __init__(self, shell: subprocess.Popen[str]) -> None:
        self._shell = shell

    def type(self, command: str, seconds: float = STEP_SECONDS) -> tuple[int | None, list[str]]:
        """Types a command and waits for its end, `seconds` at most.

        Returns:
            Its exit status, None if the shell ended before, and all lines that it showed.
        """
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null 2>&1; printf '\\n{END} %d\\n' $?\n")
        self._shell.stdin.flush()
        patience = threading.Timer(seconds, self._shell.kill)
        patience.start()
        seen: list[str] = []
        try:
            for line in self._shell.stdout:
                if line.startswith(f"{END} "):
                    return int(line.split()[1]), seen
                seen.append(line.rstrip("\n"))
        finally:
            patience.cancel()
        return None, seen


def problems(step: Typed, status: int | None, seen: list[str]) -> list[str]:
    """What differs from the page after a step."""
    if status is None:
        return ["the shell ended, or the time ran out"]
    found = []
    if (status != 0) != expects_failure(step.shown):
        found.append(f"exit status {status}")
    return found + [f"not shown: {line}" for line in lines_missing(step.shown, seen)]


def report(place: str, seconds: float | None, outcome: str, command: str) -> None:
    took = "" if seconds is None else f"{seconds:.1f} s"
    first, *more = command.splitlines()
    print(f"{place:26} {took:>9}  {outcome}  $ {first}{' ...' if more else ''}", flush=True)


def walk(lab: Lab, page: Page, options: set[str]) -> int:
    """Types a page's commands; returns how many did not do what the page shows."""
    failed = 0
    name = Path(page.path).name
    with lab.terminal(page.host) as terminal:
        terminal.type(f"cd {page.directory}")
        for step in typed((CHECKOUT / page.path).read_text()):
            place = f"{name}:{step.line}"
            if reason := why_not(page, step.command, options):
                report(place, None, f"skipped, {reason}", step.command)
                continue
            if "-i inventory/mine site.yml" in step.command:
                terminal.type(PUT_MACHINES_IN.format(address=lab.address(DEPLOYED)))
            began = time.monotonic()
            long = LONG_STEP_SECONDS if "test" in options else STEP_SECONDS
            status, seen = terminal.type(step.command, long)
            found = problems(step, status, seen)
            report(place, time.monotonic() - began, "FAILED" if found else "ok", step.command)
            if found:
                failed += 1
                print(*(f"    | {line}" for line in seen[-SHOWN_LINES:]), sep="\n")
                print(*(f"    {problem}" for problem in found), sep="\n", flush=True)
            if status is None:
                break
    return failed


def set_up(lab: Lab, hosts: set[str]) -> None:
    """Boots the hosts and brings the last commit to some."""
    made = ["git", "bundle", "create", "-q", "-", "HEAD", "--tags"]
    bundle = subprocess.run(made, cwd=CHECKOUT, check=True, capture_output=True).stdout
    lab.boot()
    for host in sorted(hosts):
        began = time.monotonic()
        lab.run("ssh", host, SET_UP)
        lab.run("ssh", host, CLONE, stdin=bundle)
        report(f"a checkout on {host}", time.monotonic() - began, "ok", "git clone")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="walk these pages alone")
    parser.add_argument("--without-bench", action="store_true", help="do not type the benchmark")
    parser.add_argument("--with-test", action="store_true", help="also type ./kestrel test")
    parser.add_argument("--keep", action="store_true", help="leave the hosts when it is over")
    parser.add_argument("--name", default="walk", help="of the lab (default: walk)")
    parser.add_argument("--subnet", default="10.89.66", help="of the lab (default: 10.89.66)")
    asked = parser.parse_args()
    options = {"test"} if asked.with_test else set()
    options |= set() if asked.without_bench else {"bench"}
    pages = [page for page in PAGES if not asked.pages or page.path in asked.pages]
    if not pages:
        parser.error(f"there are {', '.join(page.path for page in PAGES)}")
    lab = Lab(asked.name, asked.subnet)
    began = time.monotonic()
    try:
        set_up(lab, {page.host for page in pages})
        failed = sum(walk(lab, page, options) for page in pages)
    finally:
        if not asked.keep:
            lab.run("down")
    print(f"{failed} failed, in {time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
