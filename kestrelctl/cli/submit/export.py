"""`submit --export`: variables of the submitter's environment that go along with a job.

They are given by name, or all at once; `sbatch` has the same option (sbatch(1), `--export`),
HTCondor calls it `getenv` (condor_submit). Both send whatever the environment holds. Here `ALL`
leaves out what looks like a secret: a job's environment is stored, and shown to admins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from kestrelctl.core.model.wording import plural
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import split_words

#: Stands for the whole environment.
ALL = "ALL"
#: The most names that a warning or an error gives.
_MOST_NAMED = 20
#: Words of secrets, anywhere in a name, in any case: rather one variable too few than a secret too
#: many.
_SECRET_WORDS = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|PASSFILE|CREDENTIAL|KEY|COOKIE|PRIVATE"
    r"|(?:^|_)(?:PASS|PWD|PW|PAT|JWT|AUTH|PIN)(?:_|$)|^SSHPASS$"
    r"|^(?:AWS|AZURE|GOOGLE|GCP|GH|GITHUB|GITLAB|VAULT|SSH|GPG|GNUPG)_|^KRB5",
    re.IGNORECASE,
)
#: A user name and a password before the host of an address (RFC 3986, 3.2.1).
_PASSWORD_IN_ADDRESS = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
#: Variables about the submitter's terminal, session, shell or account, which are wrong for a task:
#: the worker's account has its own home and name.
_OF_HERE = re.compile(
    r"PWD|OLDPWD|SHLVL|_|HOST|HOSTNAME|HOME|USER|LOGNAME|SHELL|MAIL|TMPDIR|TMP|TEMP|EDITOR|VISUAL"
    r"|TERM|TERM_.*|TERMINFO|COLORTERM|COLUMNS|LINES|TTY|PS[0-4]|PROMPT.*|HIST.*"
    r"|DISPLAY|WAYLAND_.*|XAUTHORITY|WINDOWID|DESKTOP_SESSION|XDG_RUNTIME_DIR|XDG_SESSION_.*"
    r"|XDG_SEAT.*|XDG_VTNR|XDG_CURRENT_DESKTOP|DBUS_.*|TMUX.*|STY|SSH_(?:CLIENT|CONNECTION|TTY)"
    r"|SUDO_.*|INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET|SYSTEMD_.*|KESTREL_.*"
)


class Exported(msgspec.Struct, frozen=True):
    """The part of an environment that goes along with a job.

    Attributes:
        variables: their values by name.
        kept_back: names that `ALL` would include if they did not look like secrets.
    """

    variables: dict[str, str]
    kept_back: tuple[str, ...] = ()


def exported(given: Iterable[str], environment: Mapping[str, str]) -> Exported:
    """Selects the variables of an option `--export`.

    Args:
        given: names with commas between them; `ALL` for the whole environment.
        environment: the submitter's.

    Raises:
        UsageError: a variable that is named is not set, or is no text.
    """
    names = split_words(given)
    found: dict[str, str] = {}
    kept_back: tuple[str, ...] = ()
    if ALL in names:
        common = [name for name in environment if not _OF_HERE.fullmatch(name)]
        kept_back = tuple(
            sorted(name for name in common if name not in names and _is_kept(name, environment))
        )
        found = {name: environment[name] for name in common if name not in kept_back}
    named = [name for name in names if name != ALL]
    assigned = [name for name in named if "=" in name]
    if assigned:
        raise UsageError(
            f"--export takes names, not {assigned[0]!r}", hint=f"write --env {assigned[0]}"
        )
    unset = [name for name in named if name not in environment]
    if unset:
        raise UsageError(
            f"{names_text(unset)} {'is' if len(unset) == 1 else 'are'} not set in your environment",
            hint=f"export {unset[0]}=…, or --env {unset[0]}=VALUE",
        )
    found |= {name: environment[name] for name in named}
    odd = [name for name in found if not _is_text(name + found[name])]
    if odd:
        raise UsageError(
            f"the environment cannot go along: {names_text(odd)} is not UTF-8",
            cause="a job is described in JSON",
            hint=f"unset {odd[0]}",
        )
    return Exported(found, kept_back)


def names_text(names: Iterable[str]) -> str:
    """Lists the first of these names, and says how many more there are."""
    every = list(names)
    more = len(every) - _MOST_NAMED
    shown = ", ".join(every[:_MOST_NAMED])
    return f"{shown} and {plural(more, 'other')}" if more > 0 else shown


def _is_kept(name: str, environment: Mapping[str, str]) -> bool:
    value = environment[name]
    return bool(_SECRET_WORDS.search(name) or _PASSWORD_IN_ADDRESS.search(value))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
