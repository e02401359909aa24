#!/usr/bin/python
"""Ansible module: accounts of an ejabberd that runs on this host."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: ejabberd_account
short_description: Make, correct and remove accounts of ejabberd
description:
  - Asks the ejabberd that runs here, over its port for tools, as C(ejabberdctl) does. All that is
    asked at a time is asked by one program, and passwords come to it on its standard input; with
    C(ejabberdctl) each account would take seconds, and show its password in the list of processes.
  - A password is tried first; nothing is written if it fits.
  - Accounts that are not named are left alone. Sessions that are open stay open, except those of
    accounts that are removed.
options:
  accounts:
    description: Address of each account that must exist, and its password.
    type: dict
    default: {}
  absent:
    description: Addresses of accounts that must not exist.
    type: list
    elements: str
    default: []
  list_hosts:
    description: Hosts whose accounts are listed, as they are before anything is changed.
    type: list
    elements: str
    default: []
author: Kestrel
"""

EXAMPLES = """
- name: Provide the accounts
  ejabberd_account:
    accounts:
      node1@workers.pool.internal: "{{ password }}"

- name: Remove an account
  ejabberd_account:
    absent: [node2@workers.pool.internal]
"""

RETURN = """
created:
  description: Addresses of accounts that were made.
  type: list
updated:
  description: Addresses of accounts whose password was corrected.
  type: list
removed:
  description: Addresses of accounts that were removed.
  type: list
found:
  description: Addresses of the accounts at C(list_hosts), in order.
  type: list
"""

_ADDRESS = re.compile(r"([a-z0-9._-]+)@([a-z0-9.-]+)")
_USER = re.compile(r'\{<<"([^"]*)">>,<<"([^"]*)">>\}')
_CONFIGURATION = "/etc/default/ejabberd"

#: Starts an Erlang beside that of the server, with the same options, under a name of its own.
_START = """\
. "$1"
case $ERLANG_NODE in *.*) kind=-name ;; *) kind=-sname ;; esac
export ERL_INETRC=/etc/ejabberd/inetrc
exec erl $kind "kestrel-$$-$ERLANG_NODE" -hidden -noshell -start_epmd false -dist_listen false \\
    -erl_epmd_port "$ERL_DIST_PORT" $ERL_OPTIONS -eval "$2" -extra "$ERLANG_NODE"
"""
#: Calls, at the server, the function that each line of the input names, with binaries.
_CALLS = """\
[Name] = init:get_plain_arguments(),
Node = list_to_atom(Name),
Each = fun(Again) ->
    case io:get_line("") of
        eof -> ok;
        Line ->
            Told = string:trim(Line, trailing, "\\n"),
            [Module, Function | Words] = string:split(Told, "\\t", all),
            Given = [list_to_binary(Word) || Word <- Words],
            Said = rpc:call(Node, list_to_atom(Module), list_to_atom(Function), Given, 60000),
            io:format("~0p~n", [Said]),
            Again(Again)
    end
end,
Each(Each),
halt(0).
"""

#: Asks the server to call functions, each a module, a name and arguments; returns what they said.
Ask = Callable[[Sequence[Sequence[str]]], list[str]]


class BadAccount(Exception):
    """What was asked for cannot be; the text says why."""


@dataclass(frozen=True)
class Server:
    """The accounts of an ejabberd.

    Attributes:
        ask: has it call functions.
    """

    ask: Ask

    def addresses(self, hosts: Sequence[str]) -> list[str]:
        """Return the addresses of all accounts at these hosts, in order."""
        said = self.ask([("ejabberd_auth", "get_users", host) for host in hosts])
        return [f"{user}@{host}" for text in said for user, host in sorted(_USER.findall(text))]

    def misfits(self, accounts: dict[str, str]) -> list[str]:
        """Return the addresses of those accounts that have another password."""
        said = self.ask(
            [
                ("ejabberd_auth", "check_password", user, "", host, accounts[f"{user}@{host}"])
                for user, host in map(split, accounts)
            ]
        )
        return [address for address, text in zip(accounts, said, strict=True) if text != "true"]

    def create(self, accounts: dict[str, str]) -> None:
        """Make accounts."""
        self._change("try_register", accounts)

    def correct(self, accounts: dict[str, str]) -> None:
        """Give accounts new passwords."""
        self._change("set_password", accounts)

    def remove(self, addresses: Sequence[str]) -> None:
        """Remove accounts with all that is stored of them, and end their sessions."""
        self._require(
            addresses,
            self.ask([("ejabberd_auth", "remove_user", *split(each)) for each in addresses]),
        )

    def _change(self, function: str, accounts: dict[str, str]) -> None:
        calls = [("ejabberd_auth", function, *split(address), password)
                 for address, password in accounts.items()]  # fmt: skip
        self._require(list(accounts), self.ask(calls))

    def _require(self, addresses: Sequence[str], said: Sequence[str]) -> None:
        for address, text in zip(addresses, said, strict=True):
            if text != "ok":
                raise BadAccount(f"ejabberd did not take the account {address}: it says {text}")


def split(address: str) -> tuple[str, str]:
    """Return name and host of an account's address.

    Raises:
        BadAccount: ejabberd would know it under another one.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise BadAccount(f"{address!r} is no account's address: name@host in lower case")
    return found[1], found[2]


def check(address: str, password: object) -> None:
    """Refuse what ejabberd would know under another name, or as another password.

    Raises:
        BadAccount: it must not be stored as it is.
    """
    split(address)
    if not (isinstance(password, str) and password and password.isascii()
            and password.isprintable()):  # fmt: skip
        raise BadAccount(f"the password of {address} must be printable ASCII")


def carry_out(
    server: Server, accounts: dict[str, str], absent: Sequence[str], *, rehearsal: bool
) -> dict[str, list[str]]:
    """Return which accounts were created, updated and removed, or would be.

    Raises:
        BadAccount: one cannot be.
    """
    for address, password in accounts.items():
        check(address, password)
    hosts = sorted({split(address)[1] for address in (*accounts, *absent)})
    present = set(server.addresses(hosts))
    created = [address for address in accounts if address not in present]
    updated = server.misfits({each: accounts[each] for each in accounts if each in present})
    removed = [address for address in absent if address in present]
    if not rehearsal:
        server.create({address: accounts[address] for address in created})
        server.correct({address: accounts[address] for address in updated})
        server.remove(removed)
    return {"created": created, "updated": updated, "removed": removed}


def lines_of(calls: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield what `_CALLS` reads."""
    for words in calls:
        yield "\t".join(words) + "\n"


def asking(module: AnsibleModule) -> Ask:
    """Return what has the ejabberd of this host call functions."""

    def ask(calls: Sequence[Sequence[str]]) -> list[str]:
        if not calls:
            return []
        command = ["runuser", "--user=ejabberd", "--", "env", "HOME=/var/lib/ejabberd",
                   "sh", "-c", _START, "sh", _CONFIGURATION, _CALLS]  # fmt: skip
        status, out, error = module.run_command(
            command, data="".join(lines_of(calls)), binary_data=True, cwd="/"
        )
        said = out.splitlines()
        if status != 0 or len(said) != len(calls) or any("{badrpc," in text for text in said):
            module.fail_json(
                msg="ejabberd cannot be asked about its accounts:"
                f" {(error or out).strip()[-300:] or f'it ended with status {status}'}"
                " (ejabberdctl status says whether it runs)"
            )
        return said

    return ask


def main() -> None:
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "accounts": {"type": "dict", "default": {}, "no_log": True},
            "absent": {"type": "list", "elements": "str", "default": []},
            "list_hosts": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    if module.check_mode and not (shutil.which("erl") and os.path.exists(_CONFIGURATION)):
        module.exit_json(changed=False, found=[], created=[], updated=[], removed=[])
    server = Server(asking(module))
    try:
        found = server.addresses(module.params["list_hosts"])
        result = carry_out(
            server, module.params["accounts"], module.params["absent"],
            rehearsal=module.check_mode,
        )  # fmt: skip
    except BadAccount as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=any(result.values()), found=found, **result)


if __name__ == "__main__":
    main()
