"""Every page can be reached from docs/index.md, and every link leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
INDEX = DOCS / "index.md"


def pages() -> list[Path]:
    """Every Markdown file of the checkout, without those of hidden directories."""
    return sorted(
        page
        for page in CHECKOUT.rglob("*.md")
        if not any(part.startswith(".") for part in page.relative_to(CHECKOUT).parts)
    )


def prose(page: Path) -> str:
    """A page's text without blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[str]:
    """Where a page's links and pictures lead, those to other sites left out."""
    text = re.sub(r"`[^`\n]*`", "code", prose(page))
    for target in re.findall(r"\]\(([^()\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchor(heading: str) -> str:
    """What GitHub makes of a heading."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What can stand behind `#` in a link to a page."""
    text = prose(page)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = anchor(heading)
        before = found.count(name)
        found.append(name if not before else f"{name}-{before}")
    return frozenset(found + re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    lost = []
    for link in links(page):
        path, _, name = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (name and name not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_the_index_leads_to_every_page_once() -> None:
    led_to = [link for link in links(INDEX) if not link.startswith("..")]
    there = [page.name for page in DOCS.glob("*.md") if page != INDEX]
    assert sorted(led_to) == sorted([*there, "decisions"])


def test_the_index_says_something_of_each_page() -> None:
    entries = re.findall(r"^- \[[^]]+\]\(([^)]+)\): (.+)$", INDEX.read_text(), re.MULTILINE)
    assert [name for name, sentence in entries if not sentence.endswith(".")] == []
    assert [name for name, _ in entries] == list(links(INDEX))


def test_the_index_is_ordered_by_reader() -> None:
    text = INDEX.read_text()
    readers = re.split(r"^## For (\w+)$", text, flags=re.MULTILINE)[1:]
    first = [re.findall(r"^- \[[^]]+\]\(([^)]+)\)", part, re.M)[0] for part in readers[1::2]]
    assert dict(zip(readers[::2], first, strict=True)) == {
        "scientists": "first-steps.md",
        "operators": "operations.md",
        "engineers": "../CONTRIBUTING.md",
    }


def test_no_two_decisions_have_one_number() -> None:
    numbered = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in numbered] == list(range(1, len(numbered) + 1))


def test_an_anchor_is_what_github_makes_of_a_heading() -> None:
    assert anchor("The manager's store") == "the-managers-store"
    assert anchor("`Pool.handle`, and why") == "poolhandle-and-why"
    assert anchor("What [version 4](a.md) changed") == "what-version-4-changed"
