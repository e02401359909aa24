"""What a task finds in its environment of the worker's own."""

from __future__ import annotations

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.model.claim import Claim
from kestrelctl.core.model.template import Template
from kestrelctl.worker.environment import Environments

OWN = {"PATH": "/bin", "OMP_NUM_THREADS": "4", "TMPDIR": "/scratch", "NOTIFY_SOCKET": "/run/n"}


def environment(own: dict[str, str], **of_the_job: str) -> dict[str, str]:
    template = Template(job_id=1, argv=("true",), env=of_the_job)
    return Environments("w1@pool.example.org/w1", own).of(
        LocalAttempt(1, template, 0, None, Claim({}), (1, 1, 0, 1, 0), 0.0)
    )


def test_a_task_inherits_little() -> None:
    assert {name for name in environment(OWN) if not name.startswith("KESTREL_")} == {"PATH"}


def test_a_worker_can_hand_down_more_by_name() -> None:
    found = environment({**OWN, "KESTREL_INHERIT": "OMP_NUM_THREADS,TMPDIR,NOWHERE"})
    assert (found["OMP_NUM_THREADS"], found["TMPDIR"]) == ("4", "/scratch")
    assert not {"NOTIFY_SOCKET", "NOWHERE", "KESTREL_INHERIT"} & found.keys()


def test_the_job_has_the_last_word() -> None:
    own = {**OWN, "KESTREL_INHERIT": "OMP_NUM_THREADS"}
    assert environment(own, OMP_NUM_THREADS="1")["OMP_NUM_THREADS"] == "1"
