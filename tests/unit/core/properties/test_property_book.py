"""What the pool knows of the hosts of its workers, and what it adds up to."""

from __future__ import annotations

from kestrelctl.core.properties.definition import MOST_PROPERTIES
from kestrelctl.core.properties.reading import PropertyReading, missing_reading
from kestrelctl.core.properties.readings import Readings
from kestrelctl.core.properties.summary import PropertySummary


def read(value: bool | int | float | str, at: float = 1.0) -> PropertyReading:
    return PropertyReading(at, value)


def test_what_changes_is_said_by_name() -> None:
    book = Readings()
    assert book.take("w", [("a", read(1)), ("b", read(2))], anew=True) == {"a", "b"}
    assert book.take("w", [("a", read(1, at=9.0))], anew=False) == frozenset()
    assert book.take("w", [("a", read(True)), ("b", read(2))], anew=False) == {"a"}
    assert book.take("w", [("b", missing_reading(2.0, "it hangs"))], anew=False) == {"b"}
    assert book.values_of("w") == {"a": True}
    assert book.of("w")["b"].missing == "it hangs"


def test_what_is_told_anew_replaces_all_of_before() -> None:
    book = Readings()
    book.take("w", [("a", read(1)), ("b", read(2))], anew=True)
    assert book.take("w", [("b", read(2)), ("c", read(3))], anew=True) == {"a", "c"}
    assert book.values_of("w") == {"b": 2, "c": 3}


def test_a_worker_tells_of_no_more_properties_than_one_may_have() -> None:
    book = Readings()
    many = [(f"p{n}", read(n)) for n in range(MOST_PROPERTIES + 5)]
    book.take("w", many, anew=True)
    assert len(book.of("w")) == MOST_PROPERTIES
    book.take("w", [("p0", read(-1)), ("more", read(0))], anew=False)
    assert book.values_of("w")["p0"] == -1
    assert "more" not in book.of("w")


def test_workers_that_tell_nothing_of_a_property_miss_it() -> None:
    book = Readings()
    book.take("w1", [("load", read(1.0))], anew=True)
    book.take("w2", [("load", read(3.0)), ("site", read("north"))], anew=True)
    workers = ["w1", "w2", "w3"]
    assert book.names(workers) == ["load", "site"]
    assert book.summary("load", workers) == PropertySummary(2, 1, 1.0, 2.0, 3.0)
    assert book.summary("site", workers) == PropertySummary(1, 2)
    book.forget("w2")
    assert book.summary("load", workers) == PropertySummary(1, 2, 1.0, 1.0, 1.0)
