"""The authority of the flocks of one user on one machine, which signs certificates of his pools.

It is made when the first pool asks for a certificate. Its key stays in a directory that only the
user can read, and nothing but these pools trusts it. Certificates are made by `openssl`, which
comes with the packages of the XMPP server.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kestrelctl.errors import KestrelError, MissingTool, UsageError
from kestrelctl.xmpp.tls import check_pair

_AUTHORITY_DAYS = 7300
_CERTIFICATE_DAYS = 365
#: A certificate that ends sooner is made anew.
RENEW_SECONDS = 30 * 86_400.0
#: Takes the place of what openssl would otherwise read from the system.
_CONFIGURATION = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[authority]
basicConstraints = critical, CA:true, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[pool]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:{domain}
"""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class FlockAuthority:
    """Signs for the pools of one user.

    Args:
        directory: for its files; it is made, for its owner alone.

    Attributes:
        file: its certificate (PEM); pools that trust it are told this.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        self._directory = directory
        self._key = directory / "authority.key"
        self.file = directory / "authority.pem"

    def issue(self, directory: Path, domain: str) -> tuple[Path, Path]:
        """Returns the certificate and key of a pool: new ones if those that it has will not do.

        Args:
            directory: of the pool.
            domain: its own.

        Raises:
            MissingTool: there is no `openssl`.
            KestrelError: that failed.
        """
        certificate, key = directory / "flock.pem", directory / "flock.key"
        with self._alone():
            if not self.file.exists():
                self._begin()
            if not self._will_do(certificate, key, domain):
                with self._drafts(domain) as drafts:
                    _openssl(
                        "req", "-new", *_NEW_KEY, "-config", drafts / "cnf",
                        "-keyout", drafts / "key", "-out", drafts / "request",
                    )  # fmt: skip
                    _openssl(
                        "x509", "-req", "-in", drafts / "request", "-out", drafts / "pem",
                        "-CA", self.file, "-CAkey", self._key, "-days", _CERTIFICATE_DAYS,
                        "-set_serial", secrets.randbits(120),
                        "-extfile", drafts / "cnf", "-extensions", "pool",
                    )  # fmt: skip
                    shutil.move(drafts / "key", key)
                    shutil.move(drafts / "pem", certificate)
        return certificate, key

    def _begin(self) -> None:
        with self._drafts("authority") as drafts:
            _openssl(
                "req", "-x509", *_NEW_KEY, "-config", drafts / "cnf", "-extensions", "authority",
                "-keyout", drafts / "key", "-out", drafts / "pem", "-days", _AUTHORITY_DAYS,
            )  # fmt: skip
            (drafts / "key").replace(self._key)
            (drafts / "pem").replace(self.file)  # the authority exists once this is there

    def _will_do(self, certificate: Path, key: Path, domain: str) -> bool:
        moment = int(time.time() + RENEW_SECONDS)
        words = ("-CAfile", self.file, "-attime", moment, "-verify_hostname", domain)
        try:
            check_pair(certificate, key, domain)
            _openssl("verify", *words, certificate)
        except MissingTool:
            raise
        except (UsageError, KestrelError):
            return False
        return True

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _drafts(self, domain: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=self._directory) as name:
            drafts = Path(name)
            subject = "Kestrel flock of a machine" if domain == "authority" else domain[:64]
            text = _CONFIGURATION.format(name=subject, domain=domain)
            (drafts / "cnf").write_text(text)
            yield drafts


def _openssl(*words: object) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise MissingTool(
            "openssl, which makes certificates of pools, is not installed",
            hint="sudo apt-get install openssl",
        )
    made = subprocess.run(
        [program, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, umask=0o077
    )
    if made.returncode:
        lines = made.stderr.decode(errors="replace").strip().splitlines()
        raise KestrelError(
            "a certificate of a pool could not be made", cause=lines[-1] if lines else "no word"
        )
