"""XML of clients: elements that no text can break, data forms (XEP-0004), and IQ stanzas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from xml.etree.ElementTree import Element, tostring

import msgspec

_DELETE = "\x7f"
#: Code points that XML 1.0 cannot carry, besides control characters and surrogates.
_NONE = ("\ufffe", "\uffff")


def clean(text: str) -> str:
    """The text without the characters that XML cannot carry."""
    return "".join(
        c
        for c in text
        if c in "\n\t"
        or (c >= " " and c != _DELETE and c not in _NONE and not "\ud800" <= c <= "\udfff")
    )


def escaped(text: str) -> str:
    """The text as it stands between tags. (The library's own function loads one for the web.)"""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def attribute(value: str) -> str:
    """The value as it stands between quotes of either kind in a tag."""
    return escaped(value).replace("'", "&apos;").replace('"', "&quot;")


def element(tag: str, *content: Element | str, **attributes: str) -> Element:
    """An element with its content: text first, then children.

    Args:
        attributes: those that are empty are left out; `xmlns` is the namespace of all below.
    """
    found = Element(tag, {name: clean(value) for name, value in attributes.items() if value})
    for part in content:
        if isinstance(part, str):
            found.text = clean(part)
        else:
            found.append(part)
    return found


def as_text(found: Element) -> str:
    """An element as it is sent."""
    return tostring(found, encoding="unicode")


NAMESPACE = "jabber:x:data"


class Field(msgspec.Struct, frozen=True):
    """One field of a form.

    Attributes:
        kind: as in XEP-0004, 3.3: `text-single`, `text-multi`, `list-multi`, `boolean`, …
        options: what can be chosen: (value, label).
    """

    name: str
    label: str
    kind: str = "text-single"
    values: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    required: bool = False

    def as_element(self) -> Element:
        parts = [element("required")] if self.required else []
        parts += [element("value", value) for value in self.values]
        parts += [
            element("option", element("value", value), label=label) for value, label in self.options
        ]
        return element("field", *parts, type=self.kind, var=self.name, label=self.label)


def form(title: str, instructions: str, fields: Iterable[Field]) -> Element:
    """A form to be filled in."""
    return element(
        "x",
        element("title", title),
        element("instructions", instructions),
        *(field.as_element() for field in fields),
        xmlns=NAMESPACE,
        type="form",
    )


def result(title: str, fields: Iterable[Field]) -> Element:
    """A form that tells something."""
    parts = (field.as_element() for field in fields)
    return element("x", element("title", title), *parts, xmlns=NAMESPACE, type="result")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    """A form that tells the same of several things (XEP-0004, 3.4)."""
    heads = (element("field", var=name, label=name.replace("_", " ")) for name in columns)
    items = (
        element(
            "item",
            *(
                element("field", element("value", value), var=name)
                for name, value in zip(columns, row, strict=True)
            ),
        )
        for row in rows
    )
    return element(
        "x",
        element("title", title),
        element("reported", *heads),
        *items,
        xmlns=NAMESPACE,
        type="result",
    )


def submitted(found: Element) -> dict[str, list[str]] | None:
    """The values of a form that was filled in, by field; None if there is no such form.

    Args:
        found: the element that has the form in it.
    """
    filled = found.find(f"{{{NAMESPACE}}}x")
    if filled is None or filled.get("type") != "submit":
        return None
    values: dict[str, list[str]] = {}
    for field in filled.iterfind(f"{{{NAMESPACE}}}field"):
        name = field.get("var", "")
        values.setdefault(name, []).extend(
            (value.text or "") for value in field.iterfind(f"{{{NAMESPACE}}}value")
        )
    return values


DISCO_INFO = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS = "http://jabber.org/protocol/disco#items"
COMMANDS = "http://jabber.org/protocol/commands"
PING = "urn:xmpp:ping"
VCARD = "vcard-temp"
#: Larger questions are refused before they are looked at.
MOST_ELEMENTS = 1_000
MOST_CHARACTERS = 128 * 1024


class Iq(msgspec.Struct, frozen=True):
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
        """The namespace of the payload."""
        return self.payload.tag.partition("}")[0].removeprefix("{")

    @property
    def node(self) -> str:
        """The part of the address that is asked about (XEP-0030, XEP-0050); mostly empty."""
        return self.payload.get("node", "")

    def characters(self) -> int | None:
        """The length of its texts together; None if it is too large to be looked at."""
        found = 0
        elements = list(islice(self.payload.iter(), MOST_ELEMENTS + 1))
        if len(elements) > MOST_ELEMENTS:
            return None
        for each in elements:
            found += len(each.text or "") + sum(map(len, each.attrib.values()))
        return found if found <= MOST_CHARACTERS else None


class IqError(msgspec.Struct, frozen=True):
    """The reason why a question is refused (RFC 6120, 8.3).

    Attributes:
        kind: `auth`, `cancel`, `modify` or `wait`.
        condition: as in RFC 6120, 8.3.3.
        text: for people.
    """

    kind: str
    condition: str
    text: str = ""
