"""A list in which nothing is says so in words, is an empty array for programs, and is no error."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from cli_fake_pool import FakePool, run
from commandlines import LEAVES
from managerkit import PlayedManager
from storekit import QuickStore

from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import (
    EnvironmentList,
    EventPage,
    FlockRules,
    Neighbours,
    WorkerGroupList,
)
from kestrelctl.protocol.commands import CommandList, ListCommands
from kestrelctl.protocol.properties import ListProperties, PropertyList
from kestrelctl.protocol.requests import ListEvents, ListWorkerGroups
from kestrelctl.protocol.triggers import FiredList, TriggerList

#: Each command that lists what a pool has: the request, and the answer of a pool without any.
EMPTY: dict[str, tuple[str, an.AnyAnswer]] = {
    "job list": ("ListJobs", an.Jobs(id="", jobs=[], total=0)),
    "job history": ("ListJobs", an.Jobs(id="", jobs=[], total=0)),
    "job tasks 7": ("ListTasks", an.Tasks(id="", tasks=[])),
    "worker list": ("ListWorkers", an.Workers(id="", workers=[])),
    "worker group list": ("ListWorkerGroups", WorkerGroupList(id="", groups=[])),
    "worker properties": ("ListProperties", PropertyList(id="", workers=0, properties=[])),
    "worker commands": ("ListCommands", CommandList(id="", commands=[])),
    "pool policy list": ("ListPolicies", an.Policies(id="", policies=[])),
    "pool asset list": ("ListAssets", an.Assets(id="", assets=[])),
    "pool events": ("ListEvents", EventPage(id="", events=[], after=0, more=False)),
    "user list": ("ListUsers", an.Users(id="", users=[])),
    "user usage": ("UserUsage", an.UsedByUsers(id="", since=0.0, users=[])),
    "group list": ("ListGroups", an.Groups(id="", groups=[])),
    "trigger list": ("ListTriggers", TriggerList(id="", triggers=[])),
    "trigger log": ("ListFired", FiredList(id="", fired=[])),
    "environment list": ("ListEnvironments", EnvironmentList(id="", classes=[])),
    "flock pools": ("ListNeighbours", Neighbours(id="", pools=[])),
    "flock policy list": ("ListFlockRules", FlockRules(id="", rules=[], rest={})),
}


def test_every_command_that_lists_something_of_a_pool_is_in_the_table() -> None:
    lists = {name for name in LEAVES if name.split()[-1] in ("list", "history", "log")}
    lists.remove("context list")  # of this machine's configuration
    assert lists <= {line.removesuffix(" 7") for line in EMPTY}


@pytest.mark.parametrize("line", EMPTY)
def test_a_list_of_nothing_is_no_error_and_says_what_there_is_not(line: str) -> None:
    request, answer = EMPTY[line]
    shown = run(FakePool(**{request: answer}), *line.split())
    assert (shown.exit_code, shown.stdout) == (0, ""), shown.stderr
    assert shown.stderr.startswith("no "), shown.stderr
    data = run(FakePool(**{request: answer}), *line.split(), "-o", "json")
    assert (data.exit_code, data.stdout) == (0, "[]\n"), data.stderr
    lines = run(FakePool(**{request: answer}), *line.split(), "-o", "jsonl")
    assert (lines.exit_code, lines.stdout) == (0, ""), lines.stderr


#: What is asked for a list, of a manager for which nothing is configured.
ASKED: list[rq.Request] = [
    rq.ListJobs(), rq.ListWorkers(), ListWorkerGroups(), ListProperties(), ListCommands(),
    rq.ListPolicies(), rq.ListAssets(), ListEvents(), rq.ListUsers(), rq.ListGroups(),
    rq.ListEnvironments(),
]  # fmt: skip
#: With triggers and in a flock only; without any, the manager has these parts all the same.
ELSEWHERE = {"ListTriggers", "ListFired", "ListNeighbours", "ListFlockRules"}
#: They are about one job.
OF_A_JOB = {"ListTasks", "ListOutputs"}


def test_no_request_for_a_list_is_left_out() -> None:
    named = {kind.__name__ for kind in get_args(rq.AnyRequest) if kind.__name__.startswith("List")}
    assert named == {type(each).__name__ for each in ASKED} | ELSEWHERE | OF_A_JOB


@pytest.mark.parametrize("request_", ASKED, ids=lambda each: type(each).__name__)
async def test_a_manager_for_which_nothing_is_configured_answers_with_empty_lists(
    request_: rq.Request, tmp_path: Path, quick_store: QuickStore
) -> None:
    manager = PlayedManager(tmp_path, store=quick_store)
    answer = directions.answers.decode(await manager.ask("root@users.pool/1", request_))
    assert not isinstance(answer, an.Failed), answer
