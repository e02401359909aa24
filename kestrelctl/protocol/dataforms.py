"""Forms that clients show and fill in: XEP-0004."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from kestrelctl.protocol.elements import element

NAMESPACE = "jabber:x:data"


@dataclass(frozen=True)
class Field:
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
