"""Machine messages as XML text: a XEP-0335 JSON container in a message stanza."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kestrelctl.errors import UsageError
from kestrelctl.protocol import codec
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.protocol.forms import Iq, IqError, attribute, clean, element, escaped
from kestrelctl.protocol.forms import as_text as text_of

if TYPE_CHECKING:
    from kestrelctl.protocol.requests import AnyRequest

#: Code points that JSON may hold and XML 1.0 may not; written as JSON escapes they pass.
#: `codec.text_bytes` counts them as such.
_NOT_XML = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
_STANZA_ERRORS = "urn:ietf:params:xml:ns:xmpp-stanzas"


def message(payload: str, to: str, sender: str | None = None) -> str:
    """A message stanza with a JSON payload. Without a sender, the server fills it in."""
    if not payload.isascii():
        payload = payload.translate(_NOT_XML)
    source = f" from='{attribute(sender)}'" if sender else ""
    return (
        f"<message to='{attribute(to)}'{source}>"
        f"<json xmlns='{JSON_NAMESPACE}'>{escaped(payload)}</json></message>"
    )


def chat(text: str, to: str, sender: str | None = None) -> str:
    """A chat message for a person. Characters that XML cannot carry are left out."""
    source = f" from='{attribute(sender)}'" if sender else ""
    body = escaped(clean(text))
    return f"<message to='{attribute(to)}'{source} type='chat'><body>{body}</body></message>"


def mark(id_: str, address: str) -> str:
    """A message without content from an address to itself."""
    own = attribute(address)
    return f"<message to='{own}' from='{own}' id='{attribute(id_)}' type='headline'/>"


def presence(
    to: str, kind: str | None = None, sender: str | None = None, show: str = "", status: str = ""
) -> str:
    """Directed presence: available, or of the given type.

    Args:
        show, status: as in RFC 6121, 4.7.2: a word for programs, a line for people.
    """
    source = f" from='{attribute(sender)}'" if sender else ""
    sort = f" type='{kind}'" if kind else ""
    content = f"<show>{show}</show>" if show else ""
    content += f"<status>{escaped(clean(status))}</status>" if status else ""
    return f"<presence to='{attribute(to)}'{source}{sort}>{content}</presence>"


def iq(payload: str, to: str, id_: str, sender: str | None = None, kind: str = "set") -> str:
    """An IQ that asks something.

    Args:
        payload: the XML element that it carries.
        id_: what its answer repeats.
        kind: `get` or `set`.
    """
    source = f" from='{attribute(sender)}'" if sender else ""
    return f"<iq type='{kind}' id='{attribute(id_)}' to='{attribute(to)}'{source}>{payload}</iq>"


def answer(iq: Iq, payload: str | IqError) -> str:
    """The answer to an IQ.

    Args:
        payload: the XML element that it carries, or nothing; or why it is refused.
    """
    kind = "result"
    if isinstance(payload, IqError):
        kind = "error"
        parts = [element(payload.condition, xmlns=_STANZA_ERRORS)]
        if payload.text:
            parts.append(element("text", payload.text, xmlns=_STANZA_ERRORS))
        payload = text_of(element("error", *parts, type=payload.kind))
    source = f" from='{attribute(iq.to)}'" if iq.to else ""
    return (
        f"<iq type='{kind}' id='{attribute(iq.id)}' to='{attribute(iq.sender)}'{source}>"
        f"{payload}</iq>"
    )


def is_from(domain: str, sender: str) -> bool:
    """Whether an address is one of a pool's domain, whatever is before and behind that."""
    return sender.partition("/")[0].partition("@")[2] == domain


def payload_of(request: AnyRequest) -> str:
    """Returns a request as it is sent.

    Raises:
        UsageError: nobody would take it: it is too large, or not UTF-8. Nothing else would say so:
            the session drops what would end it, and the asker would wait for an answer.
    """
    try:
        payload = codec.encode(request)
    except (UnicodeEncodeError, msgspec.EncodeError):
        raise UsageError("the request is not UTF-8", cause="the pool is asked in JSON") from None
    if not codec.fits(payload):
        raise UsageError(
            f"the request is too large ({codec.text_bytes(payload):,} bytes)",
            cause=f"{codec.MAX_PAYLOAD_BYTES:,} bytes are the most",
            hint="ask in several requests, or about less",
        )
    return payload
