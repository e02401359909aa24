"""A worker repeats what the last manager told of itself, also after a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from workerkit import POOL, Worker

from kestrelctl.protocol import workers
from kestrelctl.worker.connection.manager_epochs import ManagerEpochs

ONE, OTHER = (0, 3, 77), (1_795_806_368, 11_488, 5)


def test_what_a_manager_told_last_outlives_the_process(tmp_path: Path) -> None:
    epochs = ManagerEpochs(tmp_path / "epochs")
    assert epochs.of(POOL) is None
    for epoch in (ONE, OTHER):
        epochs.keep(POOL, epoch)
    epochs.keep("lender", ONE)
    epochs.close()
    again = ManagerEpochs(tmp_path / "epochs")
    assert (again.of(POOL), again.of("lender")) == (OTHER, ONE)
    again.close()


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"pool": [1, 2]}', b'{"pool": [1, 2, -1]}', b"[]", b'{"\xff": [1, 2, 3]}']
)
def test_what_cannot_be_read_is_told_anew(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "epochs").write_bytes(text)
    epochs = ManagerEpochs(tmp_path / "epochs")
    assert epochs.of("pool") is None
    assert "cannot be read" in caplog.text
    epochs.keep("pool", ONE)
    epochs.close()
    assert ManagerEpochs(tmp_path / "epochs").of("pool") == ONE


def test_what_a_task_put_in_its_place_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    epochs = ManagerEpochs(tmp_path / "epochs")
    for name in ("epochs", "epochs.new"):
        os.symlink(victim, tmp_path / "epochs" / name)
    epochs.keep("pool", ONE)
    epochs.close()
    assert victim.read_text() == "mine"


async def test_a_hello_repeats_what_the_last_welcome_told() -> None:
    worker = Worker(sessions=1)
    [session] = worker.process.sessions
    for epoch in (None, OTHER, ONE):
        session.on_online()
        greeting = session.agent.greeting
        told = workers.Welcome(
            incarnation="one", greeting=greeting, heartbeat_seconds=60.0, epoch=epoch
        )
        worker.tell(session, told)
    session.on_online()
    session._stop_timers()
    hellos = [message for message in worker.said if isinstance(message, workers.Hello)]
    assert [message.epoch for message in hellos] == [None, None, OTHER, ONE]


async def test_a_welcome_that_does_not_count_tells_nothing() -> None:
    """It answers an earlier hello."""
    worker = Worker(sessions=1)
    [session] = worker.process.sessions
    session.on_online()
    told = workers.Welcome(incarnation="one", greeting=0, heartbeat_seconds=60.0, epoch=OTHER)
    worker.tell(session, told)
    session.on_online()
    session._stop_timers()
    assert [m.epoch for m in worker.said if isinstance(m, workers.Hello)] == [None, None]
