"""What a client asks by IQ (RFC 6120, 8.2.3), as far as the pool serves it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from xml.etree.ElementTree import Element

DISCO_INFO = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS = "http://jabber.org/protocol/disco#items"
COMMANDS = "http://jabber.org/protocol/commands"
PING = "urn:xmpp:ping"
VCARD = "vcard-temp"
#: Larger questions are refused before they are looked at.
MOST_ELEMENTS = 1_000
MOST_CHARACTERS = 128 * 1024


@dataclass(frozen=True)
class Iq:
    """A question that is still to be answered.

    Attributes:
        kind: `get` or `set`.
        payload: the one element that it carries.
    """

    sender: str
    to: str
    kind: str
    id: str
    payload: Element

    @property
    def namespace(self) -> str:
        """Of the payload."""
        return self.payload.tag.partition("}")[0].removeprefix("{")

    @property
    def node(self) -> str:
        """Which part of the address is asked about (XEP-0030, XEP-0050); mostly empty."""
        return self.payload.get("node", "")

    def characters(self) -> int | None:
        """How long its texts are together; None if it is too large to be looked at."""
        found = 0
        elements = list(islice(self.payload.iter(), MOST_ELEMENTS + 1))
        if len(elements) > MOST_ELEMENTS:
            return None
        for each in elements:
            found += len(each.text or "") + sum(map(len, each.attrib.values()))
        return found if found <= MOST_CHARACTERS else None


@dataclass(frozen=True)
class IqError:
    """Why a question is refused (RFC 6120, 8.3).

    Attributes:
        kind: `auth`, `cancel`, `modify` or `wait`.
        condition: as in RFC 6120, 8.3.3.
        text: for people.
    """

    kind: str
    condition: str
    text: str = ""
