"""Asks the pool's file share for a place to upload to (XEP-0363, HTTP File Upload)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

from kestrelctl.core.model.files.stored_file import is_share_address
from kestrelctl.errors import UsageError
from kestrelctl.protocol.forms import attribute

NAMESPACE = "urn:xmpp:http:upload:0"
#: The only headers that a server may ask for (5.2).
_HEADERS = ("authorization", "cookie", "expires")


class Slot(NamedTuple):
    """A place for one upload.

    Attributes:
        put_url: where it is sent, once and soon.
        get_url: where it is read from then on.
        headers: to send with the upload; they prove that the place is ours.
    """

    put_url: str
    get_url: str
    headers: Mapping[str, str]


class PieceTooLarge(UsageError):
    """The file share takes no piece that large.

    Attributes:
        most_bytes: the most that it takes.
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the pool's file share takes at most {most_bytes:,} bytes at once")
        self.most_bytes = most_bytes


def share_of(pool: str) -> str:
    """The address of a pool's file share.

    Args:
        pool: its domain.
    """
    return f"share.{pool}"


def slot_request(size_bytes: int, filename: str) -> str:
    """The payload of the IQ that asks for a place.

    Args:
        filename: ends up in the addresses, so it should say nothing.
    """
    return (
        f"<request xmlns='{NAMESPACE}' filename='{attribute(filename)}' size='{size_bytes}'"
        " content-type='application/octet-stream'/>"
    )


def slot_in(answer: Element) -> Slot | None:
    """The place that an answer gives; None if there is none in it."""
    slot = answer.find(f"{{{NAMESPACE}}}slot")
    put = slot.find(f"{{{NAMESPACE}}}put") if slot is not None else None
    get = slot.find(f"{{{NAMESPACE}}}get") if slot is not None else None
    if put is None or get is None:
        return None
    found = Slot(put.get("url", ""), get.get("url", ""), _headers(put))
    plain = all(value.isascii() and value.isprintable() for value in found.headers.values())
    good = is_share_address(found.put_url) and is_share_address(found.get_url) and plain
    return found if good else None


def _headers(put: Element) -> dict[str, str]:
    return {
        each.get("name", ""): (each.text or "").replace("\r", "").replace("\n", "")
        for each in put.iter(f"{{{NAMESPACE}}}header")
        if each.get("name", "").lower() in _HEADERS
    }


def largest_in(error: Element) -> int | None:
    """The largest size of an upload, if an error says that one was larger; None if not."""
    for each in error.iter(f"{{{NAMESPACE}}}max-file-size"):
        text = (each.text or "").strip()
        return int(text) if re.fullmatch(r"\d{1,18}", text) else None
    return None
