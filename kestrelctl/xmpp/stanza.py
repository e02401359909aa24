"""Machine messages as XML text: a XEP-0335 JSON container in a message stanza."""

from __future__ import annotations

from xml.sax.saxutils import escape

from kestrelctl.protocol.codec import JSON_NAMESPACE

#: Code points that JSON may hold and XML 1.0 may not; written as JSON escapes they pass.
#: `codec.text_bytes` counts them as such.
_NOT_XML = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
_DELETE = "\x7f"


def attribute(value: str) -> str:
    """A value between single quotes in a tag."""
    return escape(value, {"'": "&apos;", '"': "&quot;"})


def message(payload: str, to: str, sender: str | None = None) -> str:
    """A message stanza with a JSON payload. Without a sender, the server fills it in."""
    if not payload.isascii():
        payload = payload.translate(_NOT_XML)
    source = f" from='{attribute(sender)}'" if sender else ""
    return (
        f"<message to='{attribute(to)}'{source}>"
        f"<json xmlns='{JSON_NAMESPACE}'>{escape(payload)}</json></message>"
    )


def chat(text: str, to: str, sender: str | None = None) -> str:
    """A chat message for a person. Characters that XML cannot carry are left out."""
    clean = "".join(
        c for c in text if c in "\n\t" or (c >= " " and c != _DELETE and ord(c) not in _NOT_XML)
    )
    source = f" from='{attribute(sender)}'" if sender else ""
    return (
        f"<message to='{attribute(to)}'{source} type='chat'><body>{escape(clean)}</body></message>"
    )


def mark(id_: str, address: str) -> str:
    """A message without content from an address to itself."""
    own = attribute(address)
    return f"<message to='{own}' from='{own}' id='{attribute(id_)}' type='headline'/>"


def presence(to: str, kind: str | None = None, sender: str | None = None) -> str:
    """Directed presence: available, or of the given type."""
    source = f" from='{attribute(sender)}'" if sender else ""
    sort = f" type='{kind}'" if kind else ""
    return f"<presence to='{attribute(to)}'{source}{sort}/>"


def iq(payload: str, to: str, id_: str, sender: str | None = None) -> str:
    """An IQ of type `set`.

    Args:
        payload: the XML element that it carries.
        id_: what its answer repeats.
    """
    source = f" from='{attribute(sender)}'" if sender else ""
    return f"<iq type='set' id='{attribute(id_)}' to='{attribute(to)}'{source}>{payload}</iq>"


def no_service(id_: str, to: str, sender: str) -> str:
    """The answer to an IQ that nobody serves (RFC 6120, 8.4)."""
    source = f" from='{attribute(sender)}'" if sender else ""
    return (
        f"<iq type='error' id='{attribute(id_)}' to='{attribute(to)}'{source}>"
        "<error type='cancel'><service-unavailable"
        " xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
    )
