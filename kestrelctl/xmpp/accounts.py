"""Accounts at the XMPP server: service administration (XEP-0133) over ad-hoc commands (XEP-0050).

The server must have been told that the pool's component may do this. Prosody:

    VirtualHost "workers.example.org"
        modules_enabled = { "admin_adhoc" }
        admins = { "pool@example.org" }
"""

from __future__ import annotations

from collections.abc import Callable
from xml.etree.ElementTree import Element

from kestrelctl.errors import KestrelError, NotAllowed
from kestrelctl.protocol.forms import attribute, escaped
from kestrelctl.xmpp.xmpp_session import IqRefused, XmppSession

ADMIN = "http://jabber.org/protocol/admin"
_COMMANDS = "http://jabber.org/protocol/commands"
_DATA = "jabber:x:data"
#: Conditions of a server that gives us no rights, or does not know the command.
_NO_RIGHTS = (
    "feature-not-implemented",
    "forbidden",
    "item-not-found",
    "not-allowed",
    "not-authorized",
    "service-unavailable",
)


class Accounts:
    """The accounts of hosts that the pool's component administrates.

    Args:
        session: the component's session, which may be made later.
        administrator: the address that the server knows as an admin.
    """

    def __init__(self, session: Callable[[], XmppSession], administrator: str) -> None:
        self._session = session
        self._administrator = administrator

    async def create(self, jid: str, password: str) -> bool:
        """Makes an account; returns False if there is one of that name already.

        Raises:
            NotAllowed: the server does not let the manager do this.
            KestrelError: it failed.
            Unreachable, TimedOut: the server is away.
        """
        fields = {"accountjid": [jid], "password": [password], "password-verify": [password]}
        problem = _error_note(await self._command(jid, "add-user", fields))
        if problem is None:
            return True
        if await self.exists(jid):
            return False
        raise KestrelError(f"the server did not make the account {jid}", cause=problem)

    async def delete(self, jid: str) -> None:
        """Deletes an account, which ends its sessions; one that is not there is passed over.

        Raises:
            NotAllowed: the server does not let the manager do this.
            KestrelError: it is still there.
            Unreachable, TimedOut: the server is away.
        """
        answer = await self._command(jid, "delete-user", {"accountjids": [jid]})
        await self.end_sessions(jid)
        if await self.exists(jid):
            raise KestrelError(
                f"the server did not delete the account {jid}", cause=_error_note(answer)
            )

    async def end_sessions(self, jid: str) -> None:
        """Ends all sessions of an account, also of one that is deleted.

        Raises:
            NotAllowed: the server does not let the manager do this.
            Unreachable, TimedOut: the server is away.
        """
        await self._command(jid, "end-user-session", {"accountjids": [jid]})

    async def exists(self, jid: str) -> bool:
        """Whether there is such an account; for Prosody, a session without one counts, too.

        Raises:
            NotAllowed: the server does not let the manager ask this.
            Unreachable, TimedOut: the server is away.
        """
        answer = await self._command(jid, "user-stats", {"accountjid": [jid]})
        return _error_note(answer) is None

    async def _command(self, jid: str, node: str, fields: dict[str, list[str]]) -> Element:
        """Runs a command at the host of an account, its form filled in from the start."""
        host = jid.rpartition("@")[2]
        form = "".join(
            f"<field var='{name}'>{''.join(f'<value>{escaped(v)}</value>' for v in values)}</field>"
            for name, values in {"FORM_TYPE": [ADMIN], **fields}.items()
        )
        payload = (
            f"<command xmlns='{_COMMANDS}' node='{attribute(f'{ADMIN}#{node}')}' action='complete'>"
            f"<x xmlns='{_DATA}' type='submit'>{form}</x></command>"
        )
        try:
            return await self._session().ask_iq(payload, host, self._administrator)
        except IqRefused as error:
            if error.condition not in _NO_RIGHTS:
                raise
            raise NotAllowed(
                f"the manager may not administrate the accounts of {host}",
                cause=f"the server answered: {error.condition}",
                hint=f'Prosody, VirtualHost "{host}": modules_enabled = {{ "admin_adhoc" }}, '
                f'admins = {{ "{self._administrator}" }}',
            ) from error


def _error_note(answer: Element) -> str | None:
    """Returns the error that a command reports; None if it reports none."""
    for note in answer.iter(f"{{{_COMMANDS}}}note"):
        if note.get("type") == "error":
            return note.text or "no reason given"
    return None
