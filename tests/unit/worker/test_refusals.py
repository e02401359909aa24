"""What a worker refuses by itself, whatever its manager hands it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from neighbourskit import Neighbourhood, on_its_own_clock, pass_by

from kestrelctl.core.model.result import Outcome
from kestrelctl.protocol import directions, workers

NUMBER = 1_000
STORED = {
    "sha256": "a" * 64,
    "size_bytes": 1,
    "pieces": [{"sha256": "a" * 64, "size_bytes": 1, "url": "https://b.test/1"}],
}

LEADS_OUT: dict[str, dict[str, Any]] = {
    "an input": {"inputs": [{"name": "../../x", "stored": STORED}]},
    "an absolute input": {"inputs": [{"name": "/etc/x", "stored": STORED}]},
    "the directory of a parent's files": {"parent_files": [{"name": "../x", "job_id": 3}]},
    "standard input": {"stdin": {"name": "../x", "stored": STORED}},
    "an output": {"outputs": ["a/../../b"]},
    "an absolute output": {"outputs": ["/etc/passwd"]},
    "a checkpoint": {"checkpoints": ["../b"]},
    "a directory": {"workdir": "../b"},
    "a stage": {"stages": [{"name": "../b", "argv": ["true"]}]},
    "an address": {"outputs": ["*"], "output_to": "file:///a/../../etc"},
    "an unknown signal": {"stop_signal": "NOPE"},
    "no command": {"argv": []},
}


@pytest.mark.parametrize("template", LEADS_OUT.values(), ids=LEADS_OUT)
@on_its_own_clock
async def test_a_worker_refuses_what_leads_out_and_goes_on(
    tmp_path: Path, template: dict[str, Any]
) -> None:
    pool = Neighbourhood(tmp_path).open("b.test")
    await pass_by(1)
    said: list[workers.Report] = []
    session = pool.process.sessions[0].session
    send = session.send

    def hear(text: str, to: str) -> None:
        message = directions.from_worker.decode(text)
        if isinstance(message, workers.Report):
            said.append(message)
        send(text, to)

    session.send = hear  # type: ignore[method-assign, assignment]
    for number, fields in ((NUMBER, template), (NUMBER + 1, {"argv": ["fine"]})):
        program = {"argv": ["task"]} | fields
        told = {"job_id": number, "program": program, "owner": "ada@users.b.test"}
        run = {
            "type": "run",
            "spans": [[number, number, 0, 1, 0, 7]],
            "claims": [{"cpus": 1000}],
            "jobs": [told],
        }
        pool.to_worker(json.dumps(run))
        await pass_by(1)
    [report] = said
    [result] = report.results
    assert (result.number, result.outcome) == (NUMBER, Outcome.FAILED)
    assert result.reason.startswith("cannot-start: ")
    assert [command.program.argv for command in pool.hands.started] == [("fine",)]
