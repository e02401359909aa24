"""Names that people give to what they define: groups, policies, rules, handlers, triggers."""

from __future__ import annotations

import re

#: What such a name may be, in words.
NAME_RULE = "a name has up to 63 letters, digits, and inside also . _ -"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def is_name(text: str) -> bool:
    """Whether something may be called that."""
    return _NAME.fullmatch(text) is not None
