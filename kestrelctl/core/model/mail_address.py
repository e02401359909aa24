"""Addresses for mail to users."""

from __future__ import annotations

import re

#: RFC 5321, 4.5.3.1.3: a path has 256 characters, its angle brackets among them.
MOST_CHARACTERS = 254

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: The addresses that HTML takes in forms: no quotes, comments, spaces, or letters beyond ASCII.
#: https://html.spec.whatwg.org/multipage/input.html#valid-e-mail-address
_ADDRESS = re.compile(rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL})*")


def problem_with_mail(address: str) -> str | None:
    """Says what is wrong with an address for mail; None if all is well."""
    if len(address) <= MOST_CHARACTERS and _ADDRESS.fullmatch(address):
        return None
    return f"{address[:80]!r} is no plain address for mail, such as ada@example.org"
