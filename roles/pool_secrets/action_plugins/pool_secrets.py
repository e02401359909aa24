"""Complete the file of a pool's secrets: make what is missing, keep what exists.

Runs on the controller alone, with the vault password of the run. Every secret is a `!vault` scalar
of its own, so the inventory can be listed without the password. No secret is in the result.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.parsing.vault import AnsibleVaultError, VaultLib, match_encrypt_secret
from ansible.plugins.action import ActionBase
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

COMPONENT = "vault_kestrel_component_secret"
WORKERS = "vault_kestrel_worker_passwords"
USERS = "vault_kestrel_user_passwords"
GRAFANA = "vault_grafana_admin_password"
COOKIE = "vault_kestrel_server_cookie"
CA_KEY = "vault_kestrel_ca_key"
CA_CERTIFICATE = "kestrel_ca_certificate"
FLOCK_CA_KEY = "vault_kestrel_flock_ca_key"
FLOCK_CA_CERTIFICATE = "kestrel_flock_ca_certificate"

#: What can be made anew. `ca` puts a new authority in front of the old ones, which stay trusted
#: until `old_ca` drops them: one of them has signed what the server shows.
ROTATABLE = ("component", "workers", "users", "grafana", "ca", "old_ca")

_HEADER = """\
---
# The secrets of this pool, each encrypted by itself with your vault password. Made and completed by
# playbooks/secrets.yml. Comments are lost when it is written; keep secrets of your own elsewhere.
"""
_FLOCK_HEADER = """\
---
# The authority of a flock, its key encrypted with your vault password. Made by playbooks/flock.yml.
# Each pool of this flock that you keep needs this file; who has the key can sign for any of them.
"""
_NO_PASSWORD = """\
There is no vault password. The secrets of a pool are kept encrypted with one. Make one, then run \
this again:
  (umask 077; openssl rand -base64 24 > ~/.kestrel-vault-password)
  export ANSIBLE_VAULT_PASSWORD_FILE=~/.kestrel-vault-password"""
_PASSWORD_BYTES = 24
_CLOCK_SKEW = timedelta(hours=1)
_CA_ENDS_SOON = timedelta(days=180)


class Ciphertext(str):
    """A `!vault` scalar, as it is in the file."""


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_constructor("!vault", lambda loader, node: Ciphertext(loader.construct_scalar(node)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whom secrets are for, and which of them to make anew.

    Attributes:
        close_users: passwords of people who are not among `users` are forgotten.
        server_nodes: whether several nodes make one server, and prove themselves to each other.
    """

    domain: str
    workers: tuple[str, ...]
    users: tuple[str, ...]
    grafana: bool
    authority: bool
    rotate: frozenset[str]
    authority_days: int
    close_users: bool = False
    server_nodes: bool = False


def read(text: str) -> dict[str, Any]:
    """Return what a file of secrets holds; encrypted values as `Ciphertext`.

    Raises:
        ValueError: it is not such a file; the text says why.
    """
    if text.startswith("$ANSIBLE_VAULT"):
        raise ValueError(
            "it is encrypted as a whole; each value must be encrypted by itself"
            " (ansible-vault decrypt it, then delete the values: new ones are made)"
        )
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError("it is not a mapping of names to values")
    return content


def write(content: Mapping[str, Any], header: str = _HEADER) -> str:
    """Return the text of a file of secrets."""
    return header + "".join(_entry(str(key), value, "") for key, value in content.items())


def _entry(key: str, value: Any, indent: str) -> str:
    quoted = yaml.safe_dump(key, width=10_000).splitlines()[0]  # a host may be named 10, or yes
    if isinstance(value, Mapping) and value:
        return f"{indent}{quoted}:\n" + "".join(
            _entry(str(name), inner, indent + "  ") for name, inner in value.items()
        )
    if isinstance(value, str) and "\n" in value.strip("\n"):
        tag = "!vault |" if isinstance(value, Ciphertext) else "|"
        return f"{indent}{quoted}: {tag}\n" + "".join(
            f"{indent}  {line}\n" for line in value.rstrip("\n").split("\n")
        )
    plain = yaml.safe_dump({key: value}, default_flow_style=False, width=10_000)
    return "".join(f"{indent}{line}\n" for line in plain.splitlines())


def complete(
    content: Mapping[str, Any], wanted: Wanted, encrypt: Callable[[str], str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the completed content, and in words what was made; existing values stay as they are.

    Args:
        content: what exists.
        wanted: what must exist.
        encrypt: turns a secret into what is kept of it.
    """
    new = {key: dict(value) if isinstance(value, Mapping) else value
           for key, value in content.items()}  # fmt: skip
    made: list[str] = []

    def password() -> str:
        return encrypt(secrets.token_urlsafe(_PASSWORD_BYTES))

    if COMPONENT not in new or "component" in wanted.rotate:
        new[COMPONENT] = password()
        made.append("the manager's secret")
    for key, names, kind, what in (
        (WORKERS, wanted.workers, "workers", "worker"),
        (USERS, wanted.users, "users", "user"),
    ):
        passwords = new.setdefault(key, {}) or {}
        fresh = [name for name in names if name not in passwords or kind in wanted.rotate]
        passwords.update({name: password() for name in fresh})
        new[key] = passwords
        made += [f"the password of the {what} {name}" for name in fresh]
    if wanted.close_users:
        # Whoever gets that name one day must not let the former one in.
        gone = [name for name in new[USERS] if name not in wanted.users]
        for name in gone:
            del new[USERS][name]
        made += [f"the vault without the password of {name}" for name in gone]
    if wanted.grafana and (GRAFANA not in new or "grafana" in wanted.rotate):
        new[GRAFANA] = password()
        made.append("the password of Grafana's admin")
    if wanted.server_nodes and COOKIE not in new:
        new[COOKIE] = password()
        made.append("what the server's nodes know each other by")
    made += _complete_authority(new, wanted, encrypt, CA_KEY, CA_CERTIFICATE, "pool")
    return new, made


def complete_flock(
    content: Mapping[str, Any], wanted: Wanted, encrypt: Callable[[str], str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the same of the file of a flock, which holds its authority alone."""
    new = dict(content)
    return new, _complete_authority(
        new, wanted, encrypt, FLOCK_CA_KEY, FLOCK_CA_CERTIFICATE, "flock"
    )


def _complete_authority(
    new: dict[str, Any],
    wanted: Wanted,
    encrypt: Callable[[str], str],
    key_name: str,
    certificate_name: str,
    of: str,
) -> list[str]:
    made = []
    if wanted.authority and (
        key_name not in new or certificate_name not in new or "ca" in wanted.rotate
    ):
        key, certificate = make_authority(f"{of} {wanted.domain}", wanted.authority_days)
        former = _certificates(new.get(certificate_name, ""))
        new[key_name] = encrypt(key)
        new[certificate_name] = "".join([certificate, *former])
        made.append(f"the {of}'s certificate authority")
    elif "old_ca" in wanted.rotate:
        trusted = _certificates(new.get(certificate_name, ""))
        if len(trusted) > 1:
            new[certificate_name] = trusted[0]
            made.append("the trust without the former certificate authority")
    return made


def _certificates(bundle: str) -> list[str]:
    end = "-----END CERTIFICATE-----\n"
    return [part.lstrip() + end for part in (bundle.strip() + "\n").split(end) if part.strip()]


def make_authority(of: str, days: int) -> tuple[str, str]:
    """Return key and certificate (PEM) of a new authority (EC P-256) for a pool or a flock."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    # The serial number is part of the name: an authority and its successor must be told apart.
    serial = x509.random_serial_number()
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, f"Kestrel {of}"[:64]),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{serial:x}"),
        ]
    )
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode()


def shadowed_file(file: Path) -> Path | None:
    """Return the variables file that Ansible would stop reading if `file` were made.

    Beside a directory `group_vars/all`, a file `group_vars/all.yml` is ignored without a word.
    """
    directory = file.parent
    if directory.is_dir() or directory.parent.name != "group_vars":
        return directory if directory.is_file() else None
    candidates = (directory.with_name(directory.name + end) for end in (".yml", ".yaml", ".json"))
    return next((candidate for candidate in candidates if candidate.exists()), None)


def write_privately(file: Path, text: str) -> None:
    """Replace a file, whole or not at all, by one that only its owner can read.

    A link to it stays: pools of a flock share one, and a vault may be kept elsewhere.
    """
    file = file.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, file)
    except BaseException:
        os.unlink(draft)
        raise


def _encrypted(content: Mapping[str, Any]) -> Iterable[Ciphertext]:
    for value in content.values():
        if isinstance(value, Ciphertext):
            yield value
        elif isinstance(value, Mapping):
            yield from _encrypted(value)


class ActionModule(ActionBase):
    """Completes the file, or in check mode says what it would make."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return `made` (sentences); in check mode also `stand_ins`, values of what is missing."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {
                "file": {"type": "path", "required": True},
                "domain": {"type": "str", "required": True},
                "workers": {"type": "list", "elements": "str", "required": True},
                "users": {"type": "list", "elements": "str", "required": True},
                "grafana": {"type": "bool", "required": True},
                "authority": {"type": "bool", "required": True},
                "rotate": {"type": "list", "elements": "str", "choices": list(ROTATABLE)},
                "authority_days": {"type": "int", "required": True},
                "flock": {"type": "bool", "default": False},
                "close_users": {"type": "bool", "default": False},
                "server_nodes": {"type": "bool", "default": False},
            }
        )
        file = Path(arguments.pop("file"))
        wanted = Wanted(
            domain=arguments["domain"],
            workers=tuple(arguments["workers"]),
            users=tuple(arguments["users"]),
            grafana=arguments["grafana"],
            authority=arguments["authority"],
            rotate=frozenset(arguments["rotate"] or ()),
            authority_days=arguments["authority_days"],
            close_users=arguments["close_users"],
            server_nodes=arguments["server_nodes"],
        )
        content = self._read(file)
        vault = VaultLib(self._loader._vault.secrets)
        self._open_all(file, content, vault)
        rehearsal = self._task.check_mode
        encrypt = str if rehearsal else self._encryption(vault)
        completing = complete_flock if arguments["flock"] else complete
        new, result["made"] = completing(content, wanted, encrypt)
        result["changed"] = new != content
        if rehearsal:
            result["stand_ins"] = _stand_ins(content, new)
            if not vault.secrets:
                result.setdefault("warnings", []).append(_NO_PASSWORD)
        elif result["changed"]:
            self._write(file, write(new, _FLOCK_HEADER) if arguments["flock"] else write(new))
        result.setdefault("warnings", []).extend(_warnings(new))
        return result

    def _read(self, file: Path) -> dict[str, Any]:
        shadowed = shadowed_file(file)
        if shadowed is not None:
            raise AnsibleActionFail(
                f"{file} would make Ansible ignore {shadowed}."
                f" Move that file: mkdir {file.parent} && mv {shadowed} {file.parent}/pool.yml"
            )
        try:
            return read(file.read_text(encoding="utf-8")) if file.exists() else {}
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(
                f"{file} cannot be used as the pool's secrets: {error}"
            ) from None

    def _open_all(self, file: Path, content: dict[str, Any], vault: VaultLib) -> None:
        """Make sure that the password of this run opens what is there."""
        for ciphertext in _encrypted(content):
            if not vault.secrets:
                raise AnsibleActionFail(
                    f"There is no vault password, and {file} is encrypted with one. Give it in"
                    " ANSIBLE_VAULT_PASSWORD_FILE, by --vault-password-file or --ask-vault-pass."
                )
            try:
                vault.decrypt(ciphertext.encode())
            except AnsibleVaultError:
                tried = ", ".join(_told(name, secret) for name, secret in vault.secrets)
                raise AnsibleActionFail(
                    f"The vault password does not open {file}; the file was left as it is."
                    f" Tried: {tried}."
                ) from None

    def _encryption(self, vault: VaultLib) -> Callable[[str], str]:
        if not vault.secrets:
            raise AnsibleActionFail(_NO_PASSWORD)
        identity = constants.config.get_config_value("DEFAULT_VAULT_ENCRYPT_IDENTITY")
        name, secret = match_encrypt_secret(vault.secrets, encrypt_vault_id=identity)
        label = None if name == constants.DEFAULT_VAULT_IDENTITY else name
        return lambda text: Ciphertext(vault.encrypt(text, secret, label).decode())

    def _write(self, file: Path, text: str) -> None:
        try:
            write_privately(file, text)
        except OSError as error:
            raise AnsibleActionFail(
                f"{file} cannot be written ({error.strerror}); nothing was changed"
            ) from None


def _told(name: str, secret: Any) -> str:
    source = getattr(secret, "filename", None)
    return f"{name} ({source})" if source else f"{name} (typed or given otherwise)"


def _stand_ins(content: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run would make, in the clear: values that nobody will ever use."""
    found: dict[str, Any] = {WORKERS: {}, USERS: {}}
    for key, value in new.items():
        former = content.get(key)
        if isinstance(value, Mapping):
            kept = former if isinstance(former, Mapping) else {}
            found[key] = {name: text for name, text in value.items() if text != kept.get(name)}
        elif value != former:
            found[key] = value
    return found


def _warnings(content: Mapping[str, Any]) -> list[str]:
    for pem in _certificates(content.get(CA_CERTIFICATE, ""))[:1]:
        end = x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
        if end < datetime.now(UTC) + _CA_ENDS_SOON:
            return [
                f"the pool's certificate authority ends on {end:%Y-%m-%d}; make a new one:"
                " ansible-playbook playbooks/rotate_credentials.yml -e rotate=ca"
            ]
    return []
