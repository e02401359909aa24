"""The pools that this machine has joined with a token: a directory for each, named by its domain.

credentials     `JID PASSWORD`, for the owner alone
ca.pem          whom to trust, if the token said so
worker.json     where the server is, and what the worker offers
data/           scratch and results, unless told otherwise
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from kestrelctl.core.model.names import problem_with_domain
from kestrelctl.errors import KestrelError, NotFound, UsageError, why


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `worker.json`; the fields are those of `WorkerOptions`.

    Attributes:
        metrics: None if nobody said: then a service serves them, and a worker in the foreground
            does not.
    """

    pool: str
    host: str
    port: int
    tls: bool
    sessions: int = 1
    cpus: float | None = None
    memory_bytes: int | None = None
    assets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    attributes: dict[str, bool | int | float | str] = {}
    start: str = ""
    isolation: str = "auto"
    shares: tuple[str, ...] = ()
    any_workdir: bool = False
    pulls: bool = False
    metrics: str | None = None
    metrics_allow: tuple[str, ...] = ()


class Membership:
    """One pool that this machine joins or has joined.

    Args:
        root: where the directories of all such pools are.

    Raises:
        UsageError: that cannot be a pool's domain.
    """

    def __init__(self, root: Path, pool: str) -> None:
        if (problem := problem_with_domain(pool)) is not None:  # it is the name of a directory
            raise UsageError(problem, hint="for example pool.example.org")
        self.pool = pool
        self.directory = root / pool

    @property
    def credentials(self) -> Path:
        return self.directory / "credentials"

    @property
    def ca_file(self) -> Path | None:
        file = self.directory / "ca.pem"
        return file if file.exists() else None

    def prepare(self, ca: str) -> None:
        """Makes room for what is to come, before a token is spent on it.

        Args:
            ca: certificates (PEM); empty for the system's.

        Raises:
            UsageError: this machine has joined already.
            KestrelError: nothing can be written there.
        """
        if self.credentials.exists():
            raise UsageError(
                f"this machine has joined {self.pool} already",
                cause=f"its account is in {self.credentials}",
                hint=f"kestrelctl worker run --pool {self.pool}; to join anew, first: "
                f"rm {self.credentials}",
            )
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.directory / "ca.pem").unlink(missing_ok=True)
            if ca:
                (self.directory / "ca.pem").write_text(ca)
        except OSError as error:
            raise KestrelError(
                f"{self.directory} cannot be written", cause=error.strerror
            ) from error

    def store(self, settings: Settings, jid: str, password: str) -> None:
        """Keeps what the pool has given; the account last, because it says that all is there.

        Raises:
            KestrelError: it cannot be written, and so the account is lost.
        """
        draft = self.directory / "credentials.new"
        try:
            (self.directory / "worker.json").write_bytes(msgspec.json.encode(settings))
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(f"{jid} {password}\n")
                stream.flush()
                os.fsync(descriptor)  # the pool does not give it a second time
            draft.replace(self.credentials)
        except OSError as error:
            raise KestrelError(
                f"the account {jid} cannot be kept",
                cause=f"{error.filename or self.directory}: {error.strerror}",
                hint=f"an admin takes it back: kestrelctl worker revoke {jid}; then a new token",
            ) from error

    def account(self) -> str:
        """The worker's JID.

        Raises:
            KestrelError: it cannot be read.
        """
        try:
            return self.credentials.read_text().partition(" ")[0]
        except OSError as error:
            raise KestrelError(
                f"{self.credentials} cannot be read", cause=error.strerror
            ) from error

    def settings(self) -> Settings:
        """Reads the settings that were kept.

        Raises:
            KestrelError: it cannot be read.
        """
        file = self.directory / "worker.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=Settings)
        except (OSError, msgspec.DecodeError, UnicodeError) as error:
            raise KestrelError(f"{file} cannot be read", cause=why(error)) from error

    def options(self) -> dict[str, Any]:
        """Reads the settings that were kept, as fields of `WorkerOptions`.

        Raises:
            KestrelError: it cannot be read.
        """
        settings = self.settings()
        return {
            **msgspec.structs.asdict(settings),
            "shares": tuple(map(Path, settings.shares)),
            "metrics": settings.metrics or "",
            "credentials": self.credentials,
            "ca_file": self.ca_file,
            "data_dir": self.directory / "data",
        }


def joined(root: Path, pool: str | None) -> Membership:
    """The pool of that domain, or the only one that this machine has joined.

    Raises:
        NotFound: it has joined none, or not that one.
        UsageError: it has joined several.
    """
    found = sorted(file.parent.name for file in root.glob("*/credentials"))
    if pool is not None and pool not in found:
        known = f"it has joined {', '.join(found)}" if found else "it has joined none"
        raise NotFound(
            f"this machine has not joined {pool}",
            cause=known,
            hint="kestrelctl worker join TOKEN, or give --credentials",
        )
    if pool is None and not found:
        raise NotFound(
            "this machine has joined no pool",
            hint="kestrelctl worker join TOKEN, or give --pool and --credentials",
        )
    if pool is None and len(found) > 1:
        raise UsageError(
            "which pool?",
            cause=f"this machine has joined {', '.join(found)}",
            hint="--pool DOMAIN",
        )
    return Membership(root, pool or found[0])
