"""The address of a Grafana server and its token, which is never sent without encryption."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from kestrelctl.core.model.names import is_loopback
from kestrelctl.errors import UsageError


@dataclass(frozen=True, slots=True)
class GrafanaAccess:
    """A server, and the token that lets us in.

    Attributes:
        path: under which Grafana lives behind a proxy; empty or without slashes at its ends.
        token: of a service account; shown in no representation.
        timeout_seconds: for one request.
    """

    scheme: str
    host: str
    port: int | None
    path: str
    token: str = field(repr=False)
    timeout_seconds: float

    @property
    def url(self) -> str:
        """The address, without anything secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{host}{port}" + (f"/{self.path}" if self.path else "")

    @property
    def is_open(self) -> bool:
        """Whether the connection is not encrypted."""
        return self.scheme == "http"


def make_access(url: str, token: str, timeout_seconds: float) -> GrafanaAccess:
    """The access to the server at an address.

    Raises:
        UsageError: the address or the token is none, or the token would travel in the open.
    """
    if not url:
        raise UsageError(
            "which Grafana server?", hint="--url https://grafana.example.org, or GRAFANA_URL"
        )
    parts, port = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"not an address of a web server: {_bare(url)!r}", hint="https://HOST/")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            "the address of the Grafana server holds more than scheme, host, port and path",
            cause="a secret there would be seen by everybody on this machine",
            hint="--token-file FILE",
        )
    access = GrafanaAccess(
        parts.scheme, parts.hostname, port, parts.path.strip("/"), token, timeout_seconds
    )
    if access.is_open and not is_loopback(access.host):
        raise UsageError(
            f"the token would be sent to {access.host} without encryption",
            hint="an https:// address, or http://127.0.0.1:PORT through an SSH tunnel",
        )
    _check(token)
    return access


def read_token(file: Path) -> str:
    """The token in the first line of a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError("the token cannot be read", cause=f"{file}: {why}") from None


def _check(token: str) -> None:
    if not token:
        raise UsageError(
            "there is no token for the Grafana server",
            hint="--token-file FILE or GRAFANA_TOKEN, with a token of a service account",
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        # An HTTP library would refuse it as well, but its error would show the token.
        raise UsageError("the token for the Grafana server has characters that no token has")


def _split(url: str) -> tuple[SplitResult | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError:
        return None, None


def _bare(url: str) -> str:
    """The address without what might be a name and a password."""
    return url.rpartition("@")[2]
