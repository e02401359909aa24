"""What an environment has of its host beside what its class says."""

from __future__ import annotations

from kestrelctl.core.environments.host_share import host_share

HOST = {"cpus": 4.0, "memory": 1000.0, "disk": 4001.0, "gpus": 2.0}


def test_it_has_the_part_that_it_has_of_the_processors_and_no_gpu() -> None:
    assert host_share(HOST, {"cpus": 1.0}) == {"memory": 250.0, "disk": 1000.0}


def test_what_its_class_says_counts() -> None:
    assert host_share(HOST, {"cpus": 1.0, "memory": 7.0}) == {"disk": 1000.0}


def test_nobody_has_more_than_all_and_none_has_a_part_of_nothing() -> None:
    assert host_share(HOST, {"cpus": 8.0}) == {"memory": 1000.0, "disk": 4001.0}
    assert host_share({"cpus": 0.0, "memory": 5.0}, {"cpus": 8.0}) == {"memory": 0.0}
    assert host_share({"cpus": 4.0}, {"cpus": 1.0}) == {}
