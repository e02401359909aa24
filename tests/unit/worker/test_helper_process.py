"""Processes beside the worker's."""

from __future__ import annotations

import os

import psutil

from kestrelctl.worker.helper_process import start_helper


def children() -> set[int]:
    return {each.pid for each in psutil.Process().children()}


def test_a_helper_that_is_started_again_and_again_leaves_nothing() -> None:
    """A launcher that is another program waits for none of them."""
    before = children()
    for _ in range(3):
        for end in start_helper(("/bin/true",)):
            os.close(end)
        [helper] = children() - before
        os.waitid(os.P_PID, helper, os.WEXITED | os.WNOWAIT)


def test_a_helper_that_somebody_has_waited_for_hinders_no_other() -> None:
    before = children()
    for _ in range(2):
        for end in start_helper(("/bin/true",)):
            os.close(end)
        [helper] = children() - before
        os.waitpid(helper, 0)
    assert not children() - before
