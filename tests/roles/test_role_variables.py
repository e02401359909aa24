"""Every variable of a role is declared once, documented, and under the role's name."""

from __future__ import annotations

import re

import pytest
from role_files import NAMES, PLAYBOOKS, ROLES, load, specified
from templating import render, values_of

POOL_WIDE = "validate_inventory"  # declares what belongs to no role but to the pool


def text_of(role: str) -> str:
    """Return all tasks, handlers, templates and values of a role."""
    files = (
        file
        for folder in ("tasks", "handlers", "templates", "defaults", "vars")
        for file in sorted((ROLES / role / folder).rglob("*"))
        if file.is_file()
    )
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize("role", NAMES)
def test_defaults_and_specification_name_the_same_variables(role: str) -> None:
    options = specified(role)
    defaults = set(load(ROLES / role / "defaults/main.yml"))
    assert defaults - set(options) == set()
    without = {name for name in options if name not in defaults}
    assert {name for name in without if not options[name].get("required")} == (
        set(options) if role == POOL_WIDE else set()
    )


@pytest.mark.parametrize("role", [name for name in NAMES if name != POOL_WIDE])
def test_variables_begin_with_the_roles_name(role: str) -> None:
    assert [name for name in specified(role) if not name.startswith(f"{role}_")] == []


@pytest.mark.parametrize("role", NAMES)
def test_every_option_says_what_it_is_for(role: str) -> None:
    silent = [
        name
        for name, option in specified(role).items()
        if not option.get("description") or "type" not in option
    ]
    assert silent == []


@pytest.mark.parametrize("role", NAMES)
def test_a_default_that_is_told_can_be_worked_out_for_every_pool(role: str) -> None:
    """Ansible fills in the whole specification before a role does anything."""
    for option in specified(role).values():
        render(str(option.get("default", "")), values_of(role))


def words_of(role: str, **of_the_server: int) -> list[str]:
    """The command line of a role's service if the server has such ports."""
    values = values_of(role) | {"hostvars": {"srv": {"ansible_host": "192.0.2.1", **of_the_server}}}
    return list(map(str, render(f"{{{{ __{role}_arguments }}}}", values)))


def test_everybody_goes_to_the_ports_on_which_the_server_listens() -> None:
    def port(words: list[str]) -> str:
        return words[words.index("--port") + 1]

    ports = {
        "xmpp_server_client_port": 7222,
        "xmpp_server_component_port": 7347,
        "xmpp_server_component_tls_port": 7348,
    }
    assert (port(words_of("worker")), port(words_of("worker", **ports))) == ("5222", "7222")
    # The manager of this pool is said to be w1, and so is not the server's host.
    assert (port(words_of("manager")), port(words_of("manager", **ports))) == ("5348", "7348")
    near = values_of("manager") | {"inventory_hostname": "srv", "hostvars": {"srv": ports}}
    assert render("{{ manager_server_port }}", near) == 7347
    context = (ROLES / "manager/templates/config.toml.j2").read_text()
    assert "\nport = 7222\n" in render(context, near)
    [client] = [each for each in load(PLAYBOOKS / "client.yml") if "tasks" in each]
    block = client["tasks"][-1]["ansible.builtin.blockinfile"]["block"]
    assert "\nport = 7222\n" in render(
        block, {**client["vars"], **near, **ports, "user": "ada", "context": "mine"}
    )


@pytest.mark.parametrize(
    ("interfaces", "asked"),
    [
        (["*", "::"], "127.0.0.1:5222"),
        (["192.0.2.1"], "192.0.2.1:5222"),
        (["2001:db8::1", "192.0.2.1"], "[2001:db8::1]:5222"),
    ],
)
def test_the_server_is_asked_at_an_address_that_it_listens_at(
    interfaces: list[str], asked: str
) -> None:
    [waits] = load(ROLES / "xmpp_server/tasks/answer.yml")
    values = values_of("xmpp_server") | {"xmpp_server_interfaces": interfaces} | waits["vars"]
    words = waits["ansible.builtin.command"]["argv"]
    assert render(words[words.index("-connect") + 1], values) == asked


@pytest.mark.parametrize(("given", "makes"), [({}, True), ({"file": "chain.pem"}, False)])
def test_no_authority_is_made_where_the_servers_host_alone_has_a_certificate(
    given: dict[str, str], makes: bool
) -> None:
    """It would stand in place of the one in kestrel_ca_certificate, which signed that."""
    told = {f"xmpp_server_certificate_{name}": value for name, value in given.items()}
    values = values_of("pool_secrets") | {"hostvars": {"srv": told}}
    task = load(ROLES / "pool_secrets/tasks/main.yml")[0]
    assert render(task["vars"]["__pool_secrets_authority"], values) is makes


@pytest.mark.parametrize("role", NAMES)
def test_secrets_are_marked(role: str) -> None:
    secret = re.compile(r"(password|secret|ca_key)$")
    shown = [
        name
        for name, option in specified(role).items()
        if secret.search(name) and not option.get("no_log")
    ]
    assert shown == []


@pytest.mark.parametrize("role", NAMES)
def test_what_a_role_uses_is_declared_and_what_it_declares_is_used(role: str) -> None:
    text = text_of(role)
    declared = set(specified(role)) | set(load(ROLES / role / "vars/main.yml"))
    used = set(re.findall(rf"(?<![\w./-])_{{0,2}}{role}_\w+", text))
    given = text + "\n".join(file.read_text() for file in sorted(PLAYBOOKS.glob("*.yml")))
    made = set(re.findall(r"register: (\w+)", given))
    made |= set(re.findall(r"^ +(\w+):", given, re.MULTILINE))
    tags = {f"{role}_install", f"{role}_configure", f"{role}_run"}
    assert used - declared - made - tags == set()
    if role != POOL_WIDE:
        unused = {name for name in specified(role) if len(re.findall(rf"\b{name}\b", text)) < 2}
        assert unused == set()


@pytest.mark.parametrize("role", NAMES)
def test_task_files_are_short(role: str) -> None:
    long = [
        file.name
        for file in (ROLES / role / "tasks").glob("*.yml")
        if len(file.read_text().splitlines()) > 120
    ]
    assert long == []


@pytest.mark.parametrize("role", NAMES)
def test_a_readme_speaks_of_variables_that_there_are(role: str) -> None:
    readme = (ROLES / role / "README.md").read_text()
    known = {name for other in NAMES for name in specified(other)}
    tags = {f"{role}_{phase}" for phase in ("install", "configure", "run")}
    facts = {"kestrel_package_release", "kestrel_package_version", "kestrel_guard"}
    named = set(re.findall(rf"`((?:{'|'.join(NAMES)}|kestrel)_\w+)[`:]", readme))
    assert named - known - tags - facts - {"xmpp_servers"} == set()


@pytest.mark.parametrize("role", ["manager", "worker"])
def test_a_readme_says_how_the_secret_comes(role: str) -> None:
    readme = (ROLES / role / "README.md").read_text()
    unit = (ROLES / role / "templates" / f"kestrel-{role}.service.j2").read_text()
    assert ("LoadCredential=" in readme) == ("\nLoadCredential=" in unit)
    assert ("standard input" in readme) == ("\nStandardInput=" in unit)
