"""The kernel's session keyring, which processes inherit (session-keyring(7))."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

log = logging.getLogger(__name__)

#: Number of keyctl(2) by machine (syscalls(2)): libc has no function for it.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_JOIN_SESSION_KEYRING = 1
_SETPERM = 5


def close_session_keyring() -> None:
    """Has this process and all that it starts share a session keyring that nobody can use.

    The next tasks could read what a task puts into a keyring that they inherit: its Kerberos
    tickets, for instance. A task that needs one makes its own: `keyctl session`. Other keyrings are
    those of a user namespace, and each task has one of its own.
    """
    keyctl = _KEYCTL.get(os.uname().machine)
    if sys.platform != "linux" or keyctl is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    keyring = libc.syscall(keyctl, _JOIN_SESSION_KEYRING, None)
    if keyring < 0 or libc.syscall(keyctl, _SETPERM, keyring, 0) < 0:
        why = os.strerror(ctypes.get_errno())  # a kernel without keyrings; a container's filter
        log.info("tasks have no session keyring of their own: %s", why)
