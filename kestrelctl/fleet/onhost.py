"""The program that collects a diagnostics bundle on a host; it is sent there as it stands.

It needs nothing but Python 3.9 and its standard library. It writes one line: base64 of zlib of JSON
`{"files": {path: text}, "failed": {what: why}}`. Secrets do not leave the host: files that hold
nothing else are read only to know what to black out, everywhere and before anything is written.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import os
import re
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Iterator

BLACK = "<redacted>"
#: Files that are nothing but a secret, or a secret after a name.
SECRET_FILES = (
    "/etc/kestrel/*.password",
    "/etc/kestrel/*.secret",
    "/etc/kestrel/*.credentials",
    "/etc/kestrel/*.key",
    "/etc/kestrel/credentials/*",
    "/run/credentials/*/*",
    "/etc/credstore/*",
    "/etc/prosody/certs/*.key",
    "/etc/grafana/*.password",
    "/etc/grafana/tls/key.pem",
    "/root/.config/kestrel/*.password",
)
#: Configuration: collected with its secrets blacked out.
CONFIG_FILES = (
    "/etc/kestrel/*.toml",
    "/etc/kestrel/ca.pem",
    "/etc/prosody/*.cfg.lua",
    "/etc/prosody/conf.d/*.lua",
    "/etc/prometheus/*.yml",
    "/etc/prometheus/rules.d/*.yml",
    "/etc/default/prometheus",
    "/etc/grafana/grafana.ini",
    "/etc/grafana/*.env",
    "/etc/grafana/provisioning/*/*.yml",
    "/etc/grafana/provisioning/*/*.yaml",
)
STATE = "/var/lib/kestrel"
#: Where databases are the manager's: at workers, tasks write what they like.
MANAGER = f"{STATE}/manager"
EXAMPLES = {"password", "passwd", "secret"}
FILE_BYTES = 256 * 1024
JOURNAL_LINES = 50_000
COMMAND_SECONDS = 30

_NAME = r"(?:[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api_?key|private_?key|secret_?key))"
#: `submit --export ALL` keeps the same names back, and more; this program imports nothing.
_VARIABLE = (
    r"\w*(?:PASS|SECRET|TOKEN|CREDENTIAL|KEY|COOKIE|PRIVATE)\w*"
    r"|(?:\w*_)?(?:PWD|PAT|AUTH|PIN)(?:_\w*)?"
)
#: `component_secret = "x"`, `password: x`, `"token": "x"`, `Environment=ADMIN_PASSWORD=x`.
ASSIGNED = re.compile(
    rf"""(?i)(["']?\b{_NAME}["']?\]?\s*(?:=>?|:(?!/))\s*)("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[^\s"',;}}]+)"""
)
#: A line of YAML or of an INI file: without quotes, its value ends where the line does.
LINE = re.compile(
    rf"""(?im)^([ \t]*(?:-[ \t]+)?["']?(?:{_NAME}|credentials)["']?[ \t]*[:=][ \t]*)(\S.*)"""
)
#: Variables of a unit from the first on whose name says that it is secret; it may hold anything.
VARIABLES = re.compile(rf"""(?im)^(Environment=(?:.*?[\s"'])??["']?(?:{_VARIABLE})=).*""")
#: The word of a command line that follows such an option, or `worker join`.
ARGUMENT = re.compile(r"(?i)(--?(?:password|secret|token)[ =]|\bworker join )(\S+)")
IN_URL = re.compile(r"(\w://[^\s/:@]*:)([^\s/@]+)(@)")
BEARER = re.compile(r"(?i)(\b(?:bearer|basic) )([\w.~+/=-]{8,})")
PRIVATE_KEY = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL
)


def black_out(text: str, secrets: set[str]) -> str:
    """The text without the known secrets, and without what looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, BLACK)
    text = PRIVATE_KEY.sub(BLACK, text)
    text = LINE.sub(rf"\g<1>{BLACK}", text)
    text = VARIABLES.sub(rf"\g<1>{BLACK}", text)
    text = ASSIGNED.sub(rf"\g<1>{BLACK}", text)
    text = ARGUMENT.sub(rf"\g<1>{BLACK}", text)
    text = BEARER.sub(rf"\g<1>{BLACK}", text)
    return IN_URL.sub(rf"\g<1>{BLACK}\g<3>", text)


def secrets_in(text: str) -> set[str]:
    """The secrets of a file of secrets: each of its lines, and the last word of each."""
    lines = [line.strip() for line in text.splitlines()]
    words = {line.split()[-1] for line in lines if line}
    return {secret for secret in words | set(lines) if len(secret) >= 4 and "-----" not in secret}


def assigned_in(text: str) -> set[str]:
    """The secrets that a configuration assigns; they may turn up elsewhere.

    Short ones, paths, and the examples of many a default file would black out too much there.
    """
    matches = (*ASSIGNED.finditer(text), *LINE.finditer(text))
    found = {match[2].strip().strip("\"'") for match in matches}
    return {
        secret
        for secret in found
        if len(secret) >= 6 and secret[0] not in "/$<" and secret.lower() not in EXAMPLES
    }


class Collection:
    """The files that were collected, and the reasons why others could not be."""

    def __init__(self, root: str = "") -> None:
        """Args:
        root: prefix of every path, for tests.
        """
        self.root = root
        self.files: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._secrets: set[str] = set()

    def learn_secrets(self) -> None:
        """Reads what must not be in any file."""
        for path in self._glob(SECRET_FILES):
            with self._noting(path):
                self._secrets |= secrets_in(_read(path))
        for path in self._glob(CONFIG_FILES):
            with self._noting(path):
                self._secrets |= assigned_in(_read(path))

    def configuration(self) -> None:
        """Copies the configuration."""
        for path in self._glob(CONFIG_FILES):
            shown = path[len(self.root) :]
            with self._noting(shown):
                self.add(f"config{shown}", _read(path))

    def command(self, name: str, *argv: str, limit_bytes: int = FILE_BYTES) -> None:
        """Runs a command, and keeps the end of what it wrote."""

        with self._noting(name):
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=COMMAND_SECONDS, check=False,
            )  # fmt: skip
            text = done.stdout[-limit_bytes:].decode(errors="replace")
            if len(done.stdout) > limit_bytes:  # a cut line may hold a cut secret
                text = "(the beginning is left out)\n" + text.partition("\n")[2]
            self.add(name, text)
            if done.returncode and argv[:2] != ("systemctl", "status"):
                self.failed[name] = f"{argv[0]} ended with status {done.returncode}"

    def store(self) -> None:
        """Adds the sizes of the files in the state directory, and the row counts of the store."""
        sizes: dict[str, int] = {}
        rows: dict[str, dict[str, int]] = {}
        top = self.root + STATE
        for directory, _, names in os.walk(top):
            for name in names:
                path = os.path.join(directory, name)
                shown = path[len(self.root) :]
                with self._noting(shown):
                    sizes[shown] = os.lstat(path).st_size
                    is_database = name.endswith((".db", ".sqlite", ".sqlite3"))
                    if is_database and shown.startswith(f"{MANAGER}/"):
                        rows[shown] = row_counts(path)
        largest = sorted(sizes.items(), key=lambda item: -item[1])[:1000]
        summary = {"files": len(sizes), "bytes": sum(sizes.values())}
        data = {**summary, "largest_bytes": dict(largest), "rows": rows}
        self.add("store.json", json.dumps(data, indent=2) + "\n")

    def add(self, name: str, text: str) -> None:
        """Keeps a text without the secrets."""
        self.files[name.lstrip("/")] = black_out(text, self._secrets)

    def packed(self) -> str:
        """Everything, as the one line that is sent."""
        failed = {
            black_out(what, self._secrets): black_out(why, self._secrets)
            for what, why in self.failed.items()
        }
        data = json.dumps({"files": self.files, "failed": failed}, ensure_ascii=False)
        packed = zlib.compress(data.encode(errors="replace"))  # a name may be no text
        return base64.b64encode(packed).decode()

    def _glob(self, patterns: tuple[str, ...]) -> list[str]:
        found = {path for pattern in patterns for path in glob.glob(self.root + pattern)}
        return sorted(path for path in found if os.path.isfile(path))

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        """Notes under this name why something could not be collected, and goes on."""
        try:
            yield
        except FileNotFoundError as error:
            self.failed[what] = f"{error.filename or what} is not there"
        except Exception as error:
            self.failed[what] = f"{type(error).__name__}: {error}"


def row_counts(path: str) -> dict[str, int]:
    """Counts the rows of each table of an SQLite database.

    Nothing is written: without a write-ahead log nobody has the database open, and SQLite need not
    make the files that it shares with others (https://sqlite.org/wal.html#readonly).
    """
    mode = "mode=ro" if os.path.exists(path + "-wal") else "mode=ro&immutable=1"
    url = "file:" + path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    database = sqlite3.connect(f"{url}?{mode}", uri=True, timeout=5)
    try:
        database.execute("PRAGMA query_only = 1")
        names = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for (name,) in names
        }
    finally:
        database.close()


def _read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(FILE_BYTES).decode(errors="replace")


def collect(units: list[str], hours: float, journal_bytes: int) -> Collection:
    """Collects everything on this host.

    Args:
        journal_bytes: the most that is kept of each journal, from its end.
    """
    found = Collection()
    found.learn_secrets()
    python = "/opt/kestrel/venv/bin/python"
    packages = (
        "import importlib.metadata as m;"
        "print(*sorted({f'{d.name}=={d.version}' for d in m.distributions()}), sep='\\n')"
    )
    found.command("versions/kestrelctl.txt", "/opt/kestrel/venv/bin/kestrelctl", "--version")
    found.command("versions/python.txt", python, "--version")
    found.command("versions/packages.txt", python, "-c", packages)
    found.command("versions/prosody.txt", "prosodyctl", "about")
    found.command("versions/os.txt", "cat", "/etc/os-release")
    found.command("versions/kernel.txt", "uname", "-a")
    found.configuration()
    found.command("system/disks.txt", "df", "-h")
    found.command("system/memory.txt", "free", "-m")
    found.command("system/uptime.txt", "uptime")
    found.command("system/listening.txt", "ss", "-ltnp")
    for unit in units:
        service = f"{unit}.service"
        found.command(f"units/{service}", "systemctl", "cat", "--no-pager", service)
        found.command(f"status/{unit}.txt", "systemctl", "status", "--no-pager", "--full", service)
        found.command(
            f"journal/{unit}.log", "journalctl", "--no-pager", "--quiet", "-o", "short-iso-precise",
            f"--unit={service}", f"--since=-{hours * 3600:.0f}s", f"--lines={JOURNAL_LINES}",
            limit_bytes=journal_bytes,
        )  # fmt: skip
    found.store()
    return found


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    print(collect(**options).packed())
