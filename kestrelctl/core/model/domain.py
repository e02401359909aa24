"""Domains of XMPP servers: those of pools, of their neighbours and of other servers."""

from __future__ import annotations

import re

#: RFC 1035, 2.3.4: a name has 255 octets, a label 63.
MOST_CHARACTERS = 255
#: RFC 7622, 3.2 takes letters of all scripts; servers take `_` as well, and so do Docker's names.
_LABEL = r"\w(?:[\w-]{0,61}\w)?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def problem_with_domain(domain: str) -> str | None:
    """What is wrong with a domain; None if all is well.

    Two that differ only in their letters' case are one domain, so it is written in small letters.
    """
    small = domain == domain.lower()
    if small and len(domain) <= MOST_CHARACTERS and _DOMAIN.fullmatch(domain):
        return None
    return f"{domain[:80]!r} is not a domain"
