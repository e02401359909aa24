"""The ways in: the login of an account (RFC 6120) and that of a component (XEP-0114).

Kestrel needs encryption before anything is said, or none; the mechanisms of `sasl`; a resource.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from xml.etree.ElementTree import Element

from kestrelctl.core.model.names import is_loopback
from kestrelctl.errors import Untrusted, UsageError
from kestrelctl.protocol.forms import as_text, element
from kestrelctl.xmpp import sasl
from kestrelctl.xmpp.stream import CLIENT, COMPONENT, FEATURES, StanzaStream, condition_of, text_of

if TYPE_CHECKING:
    import ssl

_TLS = "urn:ietf:params:xml:ns:xmpp-tls"
_SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
_SASL_ANSWERS = ("challenge", "success", "failure")
_BIND = "urn:ietf:params:xml:ns:xmpp-bind"


class LoginRefused(Exception):
    """The server does not let an account in (RFC 6120, 6.5), or binds no resource to it (7.6.2).

    Attributes:
        condition, text: as in `StreamFailed`.
        is_bind: whether the account was let in before.
    """

    def __init__(self, condition: str, text: str = "", *, is_bind: bool = False) -> None:
        super().__init__(condition)
        self.condition = condition
        self.text = text
        self.is_bind = is_bind

    @property
    def is_of_credentials(self) -> bool:
        """Whether the server has looked at the credentials, and does not take them.

        They are not shown to it again: each time counts for its guard, which then keeps others of
        the same address out, too.
        """
        # RFC 6120, 6.5.7 and 6.5.10: it has not looked at them.
        return not self.is_bind and self.condition not in (
            "invalid-mechanism",
            "temporary-auth-failure",
        )


class StreamLogin(Protocol):
    """Opens a stream for an account or a component.

    Attributes:
        domain: that of the server.
    """

    domain: str

    async def open(self, stream: StanzaStream, host: str, port: int) -> str:
        """Opens a stream, and returns the address that it has.

        Raises:
            OSError: nobody is there, or is not to be trusted.
            StreamFailed, LoginRefused: the server says no.
            KestrelError: the two sides do not agree about encryption.
        """


class ComponentLogin:
    """The login of a component (XEP-0114).

    Args:
        context: for TLS from the start; the protocol knows no other.
    """

    def __init__(self, domain: str, secret: str, context: ssl.SSLContext | None) -> None:
        self.domain = domain
        self._secret = secret
        self._context = context

    async def open(self, stream: StanzaStream, host: str, port: int) -> str:
        await stream.connect(host, port, self._context, self.domain)
        await stream.begin(self.domain, COMPONENT)
        import hashlib

        digest = hashlib.sha1((stream.id + self._secret).encode(), usedforsecurity=False)
        stream.write(f"<handshake>{digest.hexdigest()}</handshake>")
        await stream.expect(f"{{{CLIENT}}}handshake")
        return self.domain


class ClientLogin:
    """The login of an account.

    Args:
        jid: its address; if it has a resource, that one is asked for.
        context: for STARTTLS; None for no encryption, to a server on this machine.
    """

    def __init__(self, jid: str, password: str, context: ssl.SSLContext | None) -> None:
        bare, _, self._resource = jid.partition("/")
        self._user, _, self.domain = bare.rpartition("@")
        self._password = password
        self._context = context

    async def open(self, stream: StanzaStream, host: str, port: int) -> str:
        await stream.connect(host, port)
        offers = await self._begin(stream)
        agree(offers, wants=self._context is not None)
        if self._context is not None:
            stream.write(f"<starttls xmlns='{_TLS}'/>")
            answer = await stream.expect(f"{{{_TLS}}}proceed", f"{{{_TLS}}}failure")
            if answer.tag != f"{{{_TLS}}}proceed":
                raise Untrusted("the server does not begin the encryption that it offers")
            await stream.encrypt(self._context, self.domain)
            offers = await self._begin(stream)
        await self._authenticate(stream, offers)
        await self._begin(stream)
        return await self._bind(stream)

    async def _begin(self, stream: StanzaStream) -> Element:
        """The features that the server offers on a new stream."""
        await stream.begin(self.domain, CLIENT, "en")
        return await stream.expect(FEATURES)

    async def _authenticate(self, stream: StanzaStream, offers: Element) -> None:
        names = [each.text or "" for each in offers.iter(f"{{{_SASL}}}mechanism")]
        encrypted = self._context is not None
        mechanism = choose(names, self._user, self._password, encrypted=encrypted)
        if mechanism is None:
            raise LoginRefused("invalid-mechanism", f"it offers {', '.join(names) or 'none'}")
        first = b64encode(mechanism.first()).decode() or "="
        stream.write(f"<auth xmlns='{_SASL}' mechanism='{mechanism.name}'>{first}</auth>")
        while True:
            answer = await stream.expect(*(f"{{{_SASL}}}{name}" for name in _SASL_ANSWERS))
            if answer.tag.endswith("}failure"):
                raise LoginRefused(condition_of(answer), text_of(answer))
            said = _decoded(answer.text)
            if answer.tag.endswith("}success"):
                mechanism.finish(said)
                return
            reply = b64encode(mechanism.answer(said)).decode()
            stream.write(f"<response xmlns='{_SASL}'>{reply}</response>")

    async def _bind(self, stream: StanzaStream) -> str:
        asked = as_text(element("resource", self._resource)) if self._resource else ""
        stream.write(f"<iq type='set' id='bind'><bind xmlns='{_BIND}'>{asked}</bind></iq>")
        answer = await stream.read()
        while answer.get("id") != "bind":  # what has come meanwhile is for nobody
            answer = await stream.read()
        bound = answer.find(f"{{{_BIND}}}bind/{{{_BIND}}}jid")
        if answer.get("type") != "result" or bound is None or not bound.text:
            error = answer.find(f"{{{CLIENT}}}error")
            error = answer if error is None else error
            raise LoginRefused(condition_of(error), text_of(error), is_bind=True)
        return bound.text


def choose(
    offered: Collection[str], user: str, password: str, *, encrypted: bool
) -> sasl.Mechanism | None:
    """The best mechanism that a server offers; None if there is none that will do.

    Args:
        encrypted: without encryption the server is on this machine, and nothing is gained by SCRAM,
            which takes 10,000 rounds of a hash from both.
    """
    for name in sasl.SCRAM_HASHES if encrypted else ():
        if name in offered:
            from kestrelctl.xmpp.scram import Scram

            return Scram(name, user, password)
    return sasl.PlainMechanism(user, password) if sasl.PlainMechanism.name in offered else None


def account_login(
    jid: str, password: str, host: str, *, tls: bool, ca_file: Path | None = None
) -> ClientLogin:
    """Makes the login of an account at a server.

    Args:
        jid: the account; with a resource, that one is asked for.
        tls: whether the connection must be encrypted.
        ca_file: whom to trust; see `tls.context`.

    Raises:
        UsageError: without TLS the password would leave this machine in the clear; or the
            certificates of the authorities cannot be used.
    """
    if tls:
        from kestrelctl.xmpp.tls import context

        return ClientLogin(jid, password, context(ca_file))
    if not is_loopback(host):
        raise UsageError(
            f"the password would go to {host} in the clear",
            cause="TLS is off, and the server is not on this machine",
            hint="leave TLS on: remove `tls = false` or `--no-tls`",
        )
    return ClientLogin(jid, password, None)


def _decoded(text: str | None) -> bytes:
    """Decodes what the server has said in base64 (RFC 6120, 6.4.2: `=` for nothing)."""
    try:
        return b64decode("" if text is None or text == "=" else text)
    except ValueError:
        raise Untrusted("the server's side of the login cannot be read") from None


def agree(offers: Element, *, wants: bool) -> None:
    """Passes if both sides agree whether a stream is to be encrypted.

    An offer in the clear may have been changed on the way (RFC 6120, 13.9.4).

    Args:
        offers: the features of the stream.
        wants: whether it is to be encrypted.

    Raises:
        Untrusted, UsageError: they do not.
    """
    names = {child.tag.rpartition("}")[2] for child in offers}
    if wants and "starttls" not in names:
        raise Untrusted("the server offers no encryption")
    if not wants and "starttls" in names and not names & {"mechanisms", "bind"}:
        raise UsageError(
            "the server accepts encrypted connections only",
            hint="leave TLS on: remove `tls = false` or `--no-tls`",
        )
