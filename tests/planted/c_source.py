"""Finds statements in our programs in C: by their function, and by their words, in any layout."""

from __future__ import annotations

import re

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def body(source: str, function: str) -> tuple[int, int]:
    """Where a function of a C file stands, from its header to the brace that ends it.

    Our C has a function's header and its last brace at the beginning of a line, and nothing else of
    it there.

    Returns:
        Its first and its last place in the text; twice 0 if there is none, or several.
    """
    header = re.compile(rf"^\w[^\n;]*\b{re.escape(function)}\([^;{{}}]*\) \{{$", re.MULTILINE)
    found = list(header.finditer(source))
    if len(found) != 1:
        return 0, 0
    return found[0].start(), source.index("\n}\n", found[0].start()) + 3


def places(source: str, function: str, statement: str) -> list[tuple[int, int]]:
    """Where a statement stands in a function, each as its first and its last place in the text.

    White space may differ; comments do not count as places.
    """
    first, last = body(source, function)
    code = _COMMENT.sub(lambda found: " " * len(found[0]), source)
    words = re.compile(r"\s+".join(re.escape(word) for word in statement.split()))
    return [found.span() for found in words.finditer(code, first, last)]
