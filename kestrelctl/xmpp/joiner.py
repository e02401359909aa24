"""A machine's first connection to a pool: it trades a token for an account of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kestrelctl.clock import now
from kestrelctl.core.members.enrollment import expired, parse_invitation
from kestrelctl.errors import BY_CODE, KestrelError, NotAllowed, Unreachable
from kestrelctl.protocol import codec, directions
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks
from kestrelctl.protocol.workers import VERSION, Join, NewAccount, Token
from kestrelctl.xmpp import xmpp_session


class Joiner:
    """The listener of that connection: asks once it is up, and hears the answer."""

    def __init__(self, token: Token, name: str) -> None:
        self.session: xmpp_session.XmppSession
        self.answer: asyncio.Future[NewAccount] = asyncio.get_running_loop().create_future()
        self.why = ""
        self._token = token
        self._name = name
        self._manager = f"pool@{token.pool}"

    # -- Listener ----------------------------------------------------------------------------------

    def on_online(self) -> None:
        self.why = "the pool's manager does not answer"
        self.session.send(codec.encode(Join(version=VERSION, name=self._name)), self._manager)

    def on_offline(self, why: str) -> None:
        self.why = why
        if self.session.refused:
            self._fail(self._worthless())
        elif self.session.problem:
            self._fail(self.session.problem)

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        if sender != self._manager or self.answer.done():
            return
        try:
            answer = directions.to_joiner.decode(payload)
        except codec.BadMessage as error:
            self._fail(KestrelError("the pool answered what cannot be read", cause=str(error)))
            return
        if isinstance(answer, NewAccount):
            self.answer.set_result(answer)
        else:
            refusal = BY_CODE.get(answer.code, KestrelError)
            self._fail(refusal(answer.reason, hint=answer.hint or None))

    def on_bounce(self, sender: str, condition: str) -> None:
        self._fail(
            Unreachable(
                "the pool's manager is not there",
                cause=f"the server returned the request: {condition}",
                hint="the token is still good: try again later",
            )
        )

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        """Does nothing: chat messages are for people."""

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Does nothing: the pool sends no presence to a joining machine."""

    # -- refusals ----------------------------------------------------------------------------------

    def _worthless(self) -> NotAllowed:
        """Explains why the server lets nobody in with this token."""
        invitation = parse_invitation(self._token.jid.partition("@")[0])
        if invitation is not None and invitation.expires_at <= now():
            return expired(invitation)
        return NotAllowed(
            "the token is not valid any more",
            cause="it was used already, or an admin has withdrawn it",
            hint="an admin of the pool makes a new one: kestrelctl worker enroll",
        )

    def _fail(self, error: KestrelError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def join(
    token: Token, name: str, *, ca_file: Path | None, timeout_seconds: float = 30.0
) -> NewAccount:
    """Trades a token for an account as a worker.

    Args:
        name: the wanted name; empty for that of the token.
        ca_file: holds the token's `ca`; None for the system's authorities.

    Raises:
        NotAllowed: the token was used, has expired, or is for another name.
        UsageError: the name cannot be had, or the password would go over a network in the clear.
        Untrusted: the server cannot prove that it is the one that is meant.
        Unreachable: server or manager did not answer in time.
    """
    joiner = Joiner(token, name)
    joiner.session = xmpp_session.client(
        token.jid, token.password, token.host, token.port, joiner, tls=token.tls, ca_file=ca_file
    )
    joiner.session.start()
    try:
        async with asyncio.timeout(timeout_seconds):
            return await joiner.answer
    except TimeoutError:
        raise Unreachable(
            f"the pool {token.pool} cannot be joined now",
            cause=joiner.why or f"no session with {token.host}:{token.port}",
            hint="does this machine reach the server there? `enroll --server` sets the address",
        ) from None
    finally:
        await joiner.session.stop()
