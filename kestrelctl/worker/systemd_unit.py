"""A worker that has joined as a service of systemd: of the machine for root, else of the user.

systemd.service(5), systemd.exec(5), systemd.unit(5).
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

from kestrelctl.errors import KestrelError, MissingTool, UsageError
from kestrelctl.grammar.attributes import plain_value
from kestrelctl.worker.joined_pools import Membership, Settings

#: Runs users' tasks. Joining makes the account if there is none.
SERVICE_USER = "kestrel-worker"

#: Address of a service's metrics unless told otherwise: for this machine alone, at the port that
#: the role `worker` has, too.
METRICS = "127.0.0.1:9438"

_LINGER = "loginctl enable-linger"

#: The parts that are the same in the unit of the role `worker`, which reads these files too.
_PARTS = resources.files("kestrelctl.worker") / "unit"

_UNIT = """\
[Unit]
Description=Kestrel worker of {pool}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={command}
# Asking again does not help a worker that the pool refuses (4), or one that is set up wrongly (2).
RestartPreventExitStatus=2 4
WatchdogSec=1min
# Stopping lets running tasks end.
TimeoutStopSec=15min

{parts}
{rest}
[Install]
WantedBy={target}
"""
_SYSTEM = """\
User={user}
# systemd opens the file as root. One of LoadCredential= would belong to the user that tasks run as.
StandardInput=file:{credentials}
StateDirectory=kestrel/workers/{pool}
StateDirectoryMode=0700
"""


def name_of(pool: str) -> str:
    """The name of the service."""
    return f"kestrel-worker-{pool}.service"


def check_possible(*, system: bool) -> None:
    """Passes if a service can be made; to be asked before a token is spent.

    Raises:
        MissingTool: there is no systemd, or none that runs for this user.
        UsageError: the service's user could not read this program.
    """
    if shutil.which("systemctl") is None:
        raise MissingTool(
            "systemd is not there, so there can be no service", hint="leave --service away"
        )
    if not system and not (_runtime_directory() / "systemd" / "private").exists():
        raise MissingTool(
            "no systemd runs for this user, so there can be no service",
            cause="there is one while he is logged in, and always if he lingers",
            hint=f"sudo {_LINGER} {_user()}; or leave --service away",
        )
    for place in (sys.prefix, sys.base_prefix) if system else ():
        closed = _closed_on_the_way_to(Path(place))
        if closed is not None:
            raise UsageError(
                f"the service's user cannot read {place}",
                cause=f"{closed} is closed to other users",
                hint="install it for all users: "
                "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx …",
            )


def _closed_on_the_way_to(place: Path) -> Path | None:
    """The first directory that users who own none of it cannot enter; None if there is none."""
    real = place.resolve()
    way = (*reversed(real.parents), real)
    return next((each for each in way if not each.stat().st_mode & stat.S_IXOTH), None)


def unit_text(membership: Membership, settings: Settings, *, system: bool) -> str:
    """The unit file.

    Args:
        system: of the machine: then systemd hands the account over, and the worker runs as
            `SERVICE_USER`. Otherwise it runs as the user, from his own files.
    """
    words = [sys.executable, "-P", "-m", "kestrelctl", "worker", "run", "--pool", membership.pool]
    metrics = METRICS if settings.metrics is None else settings.metrics
    words += ["--metrics", metrics] if metrics else []
    rest = ""
    if system:
        rest = _SYSTEM.format(
            user=SERVICE_USER,
            pool=membership.pool,
            credentials=_escaped(str(membership.credentials)),
        )
        words += ["--credentials", "-", "--host", settings.host, "--port", str(settings.port)]
        words += ["--tls" if settings.tls else "--no-tls"]
        words += ["--sessions", str(settings.sessions)]
        words += ["--cpus", str(settings.cpus)] if settings.cpus else []
        words += ["--memory", str(settings.memory_bytes)] if settings.memory_bytes else []
        words += [f"--asset={asset}" for asset in settings.assets]
        words += ["--tags", ",".join(settings.tags)] if settings.tags else []
        for name, value in settings.attributes.items():
            words += ["--attribute", f"{name}={plain_value(value)}"]
        words += ["--start", settings.start] if settings.start else []
        words += ["--isolation", settings.isolation]
        words += ["--pull"] if settings.pulls else []
        for allowed in settings.metrics_allow:
            words += ["--metrics-allow", allowed]
        for share in settings.shares:
            words += ["--share", share]
            rest += _opened(Path(share))
        command = " ".join(map(_quoted, words))
        if membership.ca_file is not None:
            rest += f"LoadCredential=ca.pem:{_escaped(str(membership.ca_file))}\n"
            command += " --ca-file ${CREDENTIALS_DIRECTORY}/ca.pem"
        command += " --data-dir ${STATE_DIRECTORY}"
    else:
        command = " ".join(map(_quoted, words))
        state_home = os.environ.get("XDG_STATE_HOME")
        if state_home:
            rest = f"Environment={_word(f'XDG_STATE_HOME={state_home}')}\n"
    return _UNIT.format(
        pool=membership.pool,
        command=command,
        parts=_parts(system=system),
        rest=rest,
        target="multi-user.target" if system else "default.target",
    )


def _opened(share: Path) -> str:
    """The settings that open a directory, a device, or a directory of devices to the service."""
    found = (share, *share.rglob("*")) if share.is_relative_to("/dev") else ()
    devices = [path for path in found if path.is_char_device() or path.is_block_device()]
    if not devices:
        return f"ReadWritePaths={_word(str(share))}\n"
    allowed = (f"DeviceAllow={_escaped(str(device))} rw\n" for device in sorted(devices))
    return "PrivateDevices=no\n" + "".join(allowed)


def _parts(*, system: bool) -> str:
    names = ["service.conf", "machine.conf"] if system else ["service.conf"]
    return "\n".join((_PARTS / name).read_text() for name in names)


def install(membership: Membership, settings: Settings, *, system: bool) -> str:
    """Writes the unit, and has it started (or started anew) now and at each start of the machine.

    Returns:
        The command that shows how the service is.

    Raises:
        KestrelError: it could not be written, or did not start.
    """
    name = name_of(membership.pool)
    file = _units(system=system) / name
    systemctl = ["systemctl"] if system else ["systemctl", "--user"]
    if system:
        _make_user()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(unit_text(membership, settings, system=system))
    except OSError as error:
        raise KestrelError(f"{file} cannot be written", cause=error.strerror) from error
    # Whoever has become this user by su or sudo is not told where his systemd is.
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(_runtime_directory())}
    for words in (["daemon-reload"], ["enable", name], ["restart", name]):
        done = subprocess.run(
            [*systemctl, *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise KestrelError(
                f"`{' '.join([*systemctl, *words])}` failed",
                cause=done.stderr.strip() or None,
                hint=f"{' '.join(systemctl)} status {name}",
            )
    return f"{' '.join(systemctl)} status {name}"


def _make_user() -> None:
    try:
        pwd.getpwnam(SERVICE_USER)
    except KeyError:
        words = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin"]
        done = subprocess.run([*words, SERVICE_USER], capture_output=True, text=True, check=False)
        if done.returncode:
            raise KestrelError(
                f"the account {SERVICE_USER} cannot be made", cause=done.stderr.strip() or None
            ) from None


def linger() -> str | None:
    """Has the user's services run when he is not logged in, from the start of the machine.

    Returns:
        The command for root, if only root may allow that; else None.
    """
    words = [*_LINGER.split(), "--no-ask-password", _user()]
    try:
        done = subprocess.run(words, capture_output=True, check=False)
    except FileNotFoundError:
        return f"{_LINGER} {_user()}"
    return f"{_LINGER} {_user()}" if done.returncode else None


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _runtime_directory() -> Path:
    return _named("XDG_RUNTIME_DIR", Path(f"/run/user/{os.geteuid()}"))


def _units(*, system: bool) -> Path:
    if system:
        return Path("/etc/systemd/system")
    return _named("XDG_CONFIG_HOME", Path.home() / ".config") / "systemd" / "user"


def _named(variable: str, usual: Path) -> Path:
    """A directory by the XDG Base Directory Specification, for which a relative one is none."""
    named = os.environ.get(variable, "")
    return Path(named) if os.path.isabs(named) else usual


def _escaped(text: str) -> str:
    """Escapes the specifiers that systemd would fill in."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """One word of a command line (systemd.service(5), "Command lines")."""
    return _word(word).replace("$", "$$")


def _word(word: str) -> str:
    """One word of a setting that takes several (systemd.syntax(7), "Quoting")."""
    escaped = _escaped(word).replace("\\", "\\\\").replace('"', '\\"')
    escaped = escaped.replace("\n", "\\n")  # a line of its own would be another setting
    plain = all(char.isalnum() or char in "-_./=:,@+" for char in word)
    return escaped if plain else f'"{escaped}"'
