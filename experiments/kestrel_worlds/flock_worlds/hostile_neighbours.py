"""A neighbour that means no good, and what it says to its loans beside what is right.

Whatever it makes up must come to nothing: none of it becomes a job of the lender (`GuestAudit`
would not find it at its home), none of it runs on in a loan, and no loan becomes larger
(`FlockVigil`).
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from kestrel_worlds.flock_worlds.flock_nodes import FlockedPool
from kestrel_worlds.flock_worlds.pool_faults import FlockKind
from kestrel_worlds.network import Stanza
from kestrelctl.flock.service.loan_addresses import loan_of

#: Attempts and jobs with higher numbers are made up: no pool of a world comes so far.
MADE_UP_NUMBERS = 9 * 10**18
_MADE_UP_JOBS = 10**12
_STORED = {
    "sha256": "a" * 64,
    "size_bytes": 1,
    "pieces": [{"sha256": "a" * 64, "size_bytes": 1, "url": "https://alder/1"}],
}
#: Parts that make a template wrong; each would be right without its part.
_TEMPLATES: tuple[dict[str, Any], ...] = (
    {"program": {"inputs": [{"name": "../../x", "stored": _STORED}]}},
    {"program": {"inputs": [{"name": "/etc/x", "stored": _STORED}]}},
    {"program": {"stdin": {"name": "../x", "stored": _STORED}}},
    {"program": {"parent_files": [{"name": "../x", "job_id": 3}]}},
    {"program": {"outputs": ["../*"]}},
    {"program": {"checkpoints": ["/x"]}},
    {"program": {"workdir": "x"}},
    {"program": {"stages": [{"name": "../x", "argv": ["true"]}]}},
    {"program": {"stop_signal": "NOPE"}},
    {"program": {"argv": []}},
    {"owner": ""},
    {"owner": "../../ada"},
    {"name": "n" * 300_000},
    {"program": {"env": {"": "x"}}},
    {"program": {"argv": ["{}" * 100_000]}, "with_items": True},
    {"count": 2, "further": [[9, 1, 7]]},
)
#: Parts that make a message wrong that hands attempts over.
_RUNS: tuple[dict[str, Any], ...] = (
    {"claims": [{"cpus": 0}]},
    {"claims": [{"cpus": -4000}]},
    {"claims": [{"gold": 1000}]},
    {"claims": []},
    {"jobs": []},
    {
        "items": ["i" * 200_000],
        "jobs": [{"job_id": 1, "program": {"argv": ["{}" * 1000]}, "with_items": True}],
    },
)
#: What lets a loan that obeys it offer more than it was lent.
RESIZE: dict[str, Any] = {
    "type": "resize",
    "request": "1",
    "change": {"amounts": {"cpus": 400.0}},
}
_OTHERS: tuple[dict[str, Any], ...] = (
    RESIZE,
    {"type": "take_checkpoints", "numbers": [1], "stop": [1]},
    {"type": "files_found", "number": 1, "parent": 1},
    {"type": "stop_environment", "number": 1},
    {"type": "run_command", "request": "1", "name": "x"},
    {"type": "read_properties"},
    {"type": "fetch_output", "request": "r" * 300_000, "number": 1, "stream": "stdout"},
    {"type": "fetch_output", "request": "1", "number": 1, "stream": "stdout", "offset": 2**80},
    {"type": "nonsense"},
)


def mean_no_good(pools: list[FlockedPool], random: Random, seconds: float) -> None:
    """Lets a pool that borrows say something to a loan that no honest one says."""
    loans = [
        (home, lender, loan)
        for lender in pools
        if lender.manager.flock is not None
        for borrower, loan in sorted(lender.manager.flock.keeper.loans)
        for home in pools
        if home.domain == borrower and home.server.up
    ]
    if not loans:
        return
    home, lender, loan = random.choice(loans)
    say(home, lender, loan, made_up(random, home.domain))


def say(home: FlockedPool, lender: FlockedPool, loan: str, message: dict[str, Any]) -> None:
    """Sends a message to a loan, as whoever has the server of its home can."""
    text = json.dumps(message, separators=(",", ":"))
    home.nodes.clock.tell(home.manager.pool_name, "means no good", lender.domain, text)
    stanza = Stanza("on_payload", f"pool@{home.domain}", loan_of(lender.domain, loan), text)
    home.server.streams[lender.domain].send(stanza)


def made_up(random: Random, home: str) -> dict[str, Any]:
    """Makes a message to a loan that no honest pool sends; none of it may become a job.

    Args:
        home: the domain of the pool that sends it.
    """
    if random.random() < 0.3:
        return random.choice(_OTHERS)
    number = MADE_UP_NUMBERS + random.randrange(10**15)
    job_id = _MADE_UP_JOBS + random.randrange(10**9)
    program = {"argv": ["task"]}
    template = {"job_id": job_id, "program": program, "owner": f"ada@users.{home}"}
    run: dict[str, Any] = {
        "type": "run",
        "spans": [[number, job_id, 5, 1, 0, random.randrange(10**15)]],
        "claims": [{"cpus": random.choice((1, 500, 1000))}],
        "jobs": [template],
    }
    if random.random() < 0.3:
        return run | random.choice(_RUNS)
    wrong = random.choice(_TEMPLATES)
    template.update(wrong | {"program": program | wrong.get("program", {})})
    if wrong.get("with_items"):
        run["items"] = ["i" * 200_000]
    return run


#: The harm that neighbours do, as kinds of faults.
KINDS: dict[FlockKind, float] = {mean_no_good: 1.0}
