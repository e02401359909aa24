"""XML elements for clients, built so that no text in them breaks a stream."""

from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

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
