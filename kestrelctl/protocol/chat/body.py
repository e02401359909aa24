"""Finds what a person wrote among all that chat programs put into a message.

A body may also hold what is not for us: a substitute for something that programs without it shall
show instead (XEP-0428), such as a quotation before a reply (XEP-0461) or the sentence that stands
in for what is encrypted (XEP-0380).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from xml.etree.ElementTree import Element

#: Elements of one message that are looked at; programs of people send a dozen at the most.
MOST_ELEMENTS = 100
_MOST_DIGITS = 9
_MOST_ID_CHARACTERS = 200

_CORRECTION = "{urn:xmpp:message-correct:0}replace"
_FALLBACK = "{urn:xmpp:fallback:0}"
_REACTIONS = "{urn:xmpp:reactions:0}reactions"
_RETRACTION = "{urn:xmpp:message-retract:1}retract"
#: Both versions of OMEMO (XEP-0384). Without a payload they only exchange keys.
_OMEMO = ("{eu.siacs.conversations.axolotl}encrypted", "{urn:xmpp:omemo:2}encrypted")
#: Any encryption (XEP-0380), OpenPGP as it was (XEP-0027) and is (XEP-0373).
_ENCRYPTED = (
    "{urn:xmpp:eme:0}encryption",
    "{jabber:x:encrypted}x",
    "{urn:xmpp:openpgp:0}openpgp",
)
#: Off-the-Record Messaging (XEP-0364) writes into the body.
_OTR = "?OTR"


class ChatKind(Enum):
    """The kind of a message."""

    WORDS = auto()
    ENCRYPTED = auto()
    #: A message is taken back (XEP-0424).
    RETRACTION = auto()
    #: There is nothing in it but a substitute for something else.
    SUBSTITUTE = auto()


@dataclass(frozen=True)
class ChatMarks:
    """The properties of a message besides its text.

    Attributes:
        id: the one that its program gave it; may be empty.
        corrects: the id of an earlier message that this one is to replace (XEP-0308); mostly empty.
    """

    kind: ChatKind = ChatKind.WORDS
    id: str = ""
    corrects: str = ""


#: The marks of a message that is nothing but text.
JUST_TEXT = ChatMarks()


def typed_in(message: Element) -> tuple[str, ChatMarks] | None:
    """Returns what somebody wrote, and what his program says of it.

    None if nobody waits for an answer: there is no text, such as in a receipt or a marker; it is a
    reaction (XEP-0444), or only exchanges keys (XEP-0384); or its type is that of news or of a room
    (RFC 6121, 5.2.2).

    Args:
        message: a message stanza that is no error.
    """
    if message.get("type") in ("groupchat", "headline"):
        return None
    elements = list(islice(message, MOST_ELEMENTS))
    tags = {each.tag for each in elements}
    if _REACTIONS in tags or _only_exchanges_keys(elements):
        return None
    # Bodies in other languages may follow (RFC 6121, 5.2.3).
    body = next((each.text for each in elements if each.tag.endswith("}body") and each.text), "")
    kind = ChatKind.WORDS
    if _is_encrypted(elements, body):
        kind = ChatKind.ENCRYPTED
    elif _RETRACTION in tags:
        kind = ChatKind.RETRACTION
    elif not body:
        return None
    else:
        own = _without_substitutes(body, elements)
        if body.strip() and not own.strip():
            kind = ChatKind.SUBSTITUTE
        body = own
    corrects = next((each.get("id", "") for each in elements if each.tag == _CORRECTION), "")
    marks = ChatMarks(
        kind, message.get("id", "")[:_MOST_ID_CHARACTERS], corrects[:_MOST_ID_CHARACTERS]
    )
    return body, marks


def _only_exchanges_keys(elements: list[Element]) -> bool:
    omemo = [each for each in elements if each.tag in _OMEMO]
    return bool(omemo) and not any(
        child.tag.endswith("}payload") for each in omemo for child in each
    )


def _is_encrypted(elements: list[Element], body: str) -> bool:
    return body.startswith(_OTR) or any(each.tag in (*_OMEMO, *_ENCRYPTED) for each in elements)


def _without_substitutes(body: str, elements: list[Element]) -> str:
    """The body without the parts that stand in for something else (XEP-0428, 3).

    Places are counted in code points (XEP-0426). An element without places means all of the body.
    """
    parts: list[tuple[int, int]] = []
    for each in elements:
        if each.tag == f"{_FALLBACK}fallback":
            ranges = [child for child in islice(each, MOST_ELEMENTS) if child.tag.endswith("}body")]
            parts += (
                [_range(child, len(body)) for child in ranges] if len(each) else [(0, len(body))]
            )
    kept: list[str] = []
    at = 0
    for start, end in sorted(parts):
        kept.append(body[at : max(at, start)])
        at = max(at, end)
    return "".join([*kept, body[at:]])


def _range(found: Element, length: int) -> tuple[int, int]:
    start, end = found.get("start"), found.get("end")
    if start is None and end is None:
        return 0, length
    if not (_is_number(start) and _is_number(end)) or int(start or 0) > int(end or 0):
        return 0, 0
    return int(start or 0), int(end or 0)


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
