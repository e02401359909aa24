"""Turns errors of a Grafana server, and of the connection to it, into errors of ours.

NotAllowed (4)    the token is wrong, or may not do this
Unreachable (5)   nothing answers, TLS fails, or it is not Grafana
TimedOut (6)      no answer in time
NotFound (7)      there is no such folder or dashboard
KestrelError (1)  the dashboard was changed meanwhile, or anything else
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kestrelctl.errors import KestrelError, NotAllowed, NotFound, TimedOut, Unreachable

if TYPE_CHECKING:
    from grafana_client.client import GrafanaException


def translated(error: Exception, doing: str, url: str) -> KestrelError:
    """The error for one of grafana-client's or of the library beneath it.

    Args:
        doing: what was being done, e.g. `list dashboards of`.
        url: of the server.
    """
    from grafana_client.client import GrafanaException, GrafanaTimeoutError
    from niquests.exceptions import JSONDecodeError, SSLError, Timeout, TooManyRedirects

    if isinstance(error, GrafanaTimeoutError | Timeout):
        return TimedOut(f"the Grafana at {url} did not answer in time", hint="--timeout 2m")
    if isinstance(error, GrafanaException) and error.status_code:
        return _refused(error, doing, url)
    if isinstance(error, TooManyRedirects):
        response = error.response
        place = response.headers.get("Location") if response is not None else None
        return no_grafana(url, f"it sends on to {place}, where the token does not go")
    if isinstance(error, JSONDecodeError):
        return no_grafana(url, "it answers with something else than JSON")
    if isinstance(error, SSLError):
        return Unreachable(
            f"there is no safe connection to {url}",
            cause=_root(error),
            hint="a certificate authority of your own is named by REQUESTS_CA_BUNDLE=FILE",
        )
    return Unreachable(
        f"the Grafana at {url} cannot be reached", cause=_root(error), hint=f"curl {url}/api/health"
    )


def no_grafana(url: str, why: str) -> Unreachable:
    """Makes the error for an address at which something other than Grafana answers."""
    return Unreachable(
        f"there is no Grafana at {url}", cause=why, hint="--url with the path, if it is under one"
    )


def _refused(error: GrafanaException, doing: str, url: str) -> KestrelError:
    said = _said(error)
    where = f"{doing} the Grafana at {url}"
    if doing == "look at":
        return no_grafana(url, f"/api/health: {error.status_code} {said}".rstrip())
    match error.status_code:
        case 401:
            return NotAllowed(
                f"the Grafana at {url} does not take the token",
                cause=said,
                hint="make a new token of a service account; they expire",
            )
        case 403:
            return NotAllowed(
                f"the token may not {where}",
                cause=said,
                hint="give its service account the role Editor, or rights on the folder",
            )
        case 404:
            return NotFound(f"cannot {where}", cause=said)
        case 412 if _status(error) == "version-mismatch":
            return KestrelError(
                f"cannot {where}: somebody has just saved another version",
                cause=said,
                hint="kestrelctl dashboards diff, then push again",
            )
    return KestrelError(f"cannot {where}", cause=f"{error.status_code}: {said}")


def _said(error: GrafanaException) -> str:
    """The server's own words, or as much of them as fits on a line."""
    answer = error.response
    words = answer.get("message") or answer.get("error") if isinstance(answer, dict) else answer
    return " ".join(str(words or error.message).split())[:200]


def _status(error: GrafanaException) -> str:
    return str(error.response.get("status", "")) if isinstance(error.response, dict) else ""


def _root(error: BaseException) -> str:
    """Returns the text of the first in a chain of errors."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
