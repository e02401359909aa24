"""A manager that cannot start finds that out before it takes its store, which another may have."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from kestrelctl.errors import KestrelError
from kestrelctl.manager import daemon
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.store.sqlite.store import SqliteStore

MISSING = (Path("/nonexistent/file"),)


def epoch_of(data_dir: Path) -> int:
    """That of a start that counts as one more."""
    store = SqliteStore(data_dir)
    epoch = store.open().epoch
    store.close()
    return epoch


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"metrics": "127.0.0.1:9437"}, "metrics cannot be served"),
        ({"metrics": "here"}, "is not HOST:PORT"),
        ({"metrics": "127.0.0.1:9437", "metrics_allow": ("somewhere",)}, "somewhere"),
        ({"environments": MISSING}, "cannot be read"),
        ({"handlers": MISSING}, "cannot be read"),
        ({"triggers": MISSING}, "cannot be read"),
        ({"host": "xmpp.example.org"}, "in the clear"),
        ({"tls": True, "ca_file": MISSING[0]}, "cannot be used"),
        ({"worker_hosts": ("users.pool",)}, "workers and users at once"),
        ({"secret_file": MISSING[0]}, "No such file"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_nothing_is_taken_from_others_by_a_start_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], why: str
) -> None:
    def taken(*_: Any, **__: Any) -> socket.socket:
        raise OSError(errno.EADDRINUSE, "in use")

    def never(*_: Any) -> Any:
        raise AssertionError("it has begun")

    monkeypatch.setattr(socket, "create_server", taken)
    (tmp_path / "secret").write_text("s3cret")
    before = epoch_of(tmp_path / "data")
    options = ManagerOptions(
        **{"domain": "pool", "secret_file": tmp_path / "secret", "data_dir": tmp_path / "data"}
        | wrong
    )
    with pytest.raises(KestrelError) as refused:
        daemon.run(options, never)
    assert why in f"{refused.value} {refused.value.cause}"
    assert epoch_of(tmp_path / "data") == before + 1


def test_a_file_that_is_not_there_is_told_of_in_words(tmp_path: Path) -> None:
    options = ManagerOptions(domain="pool", secret_file=MISSING[0], data_dir=tmp_path)
    with pytest.raises(KestrelError) as refused:
        daemon.run(options, lambda *_: None)  # type: ignore[arg-type,return-value]
    assert refused.value.cause == "/nonexistent/file: No such file or directory"
    options = ManagerOptions(
        domain="pool", secret_file=tmp_path / "secret", data_dir=tmp_path, triggers=MISSING
    )
    (tmp_path / "secret").touch()
    with pytest.raises(KestrelError) as refused:
        daemon.run(options, lambda *_: None)  # type: ignore[arg-type,return-value]
    assert refused.value.cause == "No such file or directory"
