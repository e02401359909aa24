"""Names: domains of XMPP servers, accounts, and what people call things."""

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


def is_called(account: str, name: str) -> bool:
    """Whether a name means that user: it is the account, or what is before its `@`."""
    return name in (account, account.partition("@")[0])


#: What such a name may be, in words.
NAME_RULE = "a name has up to 63 letters, digits, and inside also . _ -"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def is_name(text: str) -> bool:
    """Whether something may be called that."""
    return _NAME.fullmatch(text) is not None
