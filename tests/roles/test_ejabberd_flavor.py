"""What the roles make of a pool whose server is an ejabberd."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from role_files import ROLES, load
from templating import POOL, render, values_of
from test_units import exposure
from yaml import safe_load

PAGE = ROLES.parent / "docs/servers.md"
#: The pool of the page.
EXAMPLE = {
    "xmpp_server_flavor": "ejabberd",
    "kestrel_domain": "example.org",
    "xmpp_server_address": "xmpp.example.org",
    "vault_kestrel_component_secret": "SECRET",
}
#: The unit of Debian's package, of which the drop-in is a part.
UNIT = """\
[Service]
Type=notify
User=ejabberd
Group=ejabberd
ExecStart=/bin/sh -c '/usr/sbin/ejabberdctl foreground'
NotifyAccess=all
AmbientCapabilities=CAP_NET_BIND_SERVICE
"""
AT_EJABBERD = {"hostvars": {"srv": {**POOL["hostvars"]["srv"], "xmpp_server_flavor": "ejabberd"}}}


def template(role: str, name: str, **given: Any) -> str:
    values = {**values_of(role), "inventory_hostname": "srv", **given}
    return str(render((ROLES / role / "templates" / name).read_text(), values))


def configuration(**given: Any) -> Any:
    return safe_load(template("xmpp_server", "ejabberd.yml.j2", **EXAMPLE | given))


def test_the_configuration_is_that_of_the_page() -> None:
    found = re.search("^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    heading, _, text = template("xmpp_server", "ejabberd.yml.j2", **EXAMPLE).partition("\n")
    assert heading.startswith("# A Kestrel pool. Written by Ansible")
    assert text == found[1]


def test_it_listens_where_the_inventory_says() -> None:
    listening = configuration(xmpp_server_interfaces=["192.0.2.1", "127.0.0.1"])["listen"]
    assert [(each["module"], each["ip"]) for each in listening] == [
        ("ejabberd_c2s", "192.0.2.1"),
        ("ejabberd_service", "192.0.2.1"),
        ("ejabberd_c2s", "127.0.0.1"),
        ("ejabberd_service", "127.0.0.1"),
        ("ejabberd_http", "192.0.2.1"),
        ("ejabberd_http", "127.0.0.1"),
    ]


def test_without_a_port_for_files_there_is_no_file_share() -> None:
    found = configuration(xmpp_server_share_port=0)
    assert [each["module"] for each in found["listen"]] == ["ejabberd_c2s", "ejabberd_service"]
    modules = found["append_host_config"]["users.example.org"]["modules"]
    assert list(modules) == ["mod_offline", "mod_roster"]


@pytest.mark.parametrize("secret", ["no", "12e4", "-a", 'a"b\\c', "a: b #c"])
def test_a_secret_is_text_whatever_it_looks_like(secret: str) -> None:
    listening = configuration(xmpp_server_component_secret=secret)["listen"]
    assert listening[1]["hosts"] == {"example.org": {"password": secret}}


def test_files_are_at_an_address_that_may_be_of_ipv6() -> None:
    modules = configuration(xmpp_server_address="2001:db8::1")["append_host_config"]
    share = modules["users.example.org"]["modules"]["mod_http_upload"]
    assert share["put_url"] == "https://[2001:db8::1]:5443/upload"


def test_its_own_tools_reach_it_from_this_machine_alone() -> None:
    text = template("xmpp_server", "ejabberdctl.cfg.j2", **EXAMPLE)
    assert "ERLANG_NODE=ejabberd@localhost\nINET_DIST_INTERFACE=127.0.0.1\n" in text


def test_the_service_is_closed_as_far_as_it_can_be(tmp_path: Path) -> None:
    path = tmp_path / "ejabberd.service"
    path.write_text(UNIT + template("xmpp_server", "ejabberd_service.conf.j2"))
    status, level = exposure(path, 20)
    assert status == 0
    assert level <= 2.0


def test_a_manager_beside_it_speaks_tls_as_one_elsewhere_does() -> None:
    """It has no port without."""
    for host in ("srv", "w1"):
        deployed = {"__manager_deployed": "", "inventory_hostname": host, **AT_EJABBERD}
        unit = template("manager", "kestrel-manager.service.j2", **deployed)
        assert "--host 192.0.2.1 --port 5348" in unit
        assert " --tls " in unit
        assert "After=network-online.target ejabberd.service" in unit


def test_prometheus_asks_it_for_nothing() -> None:
    hosts = {**AT_EJABBERD["hostvars"], "w1": {}, "mon": {"ansible_host": "192.0.2.31"}}
    text = template(
        "prometheus", "prometheus.yml.j2", inventory_hostname="mon", hostvars=hosts,
        __prometheus_rules_found=[],
    )  # fmt: skip
    jobs = [each["job_name"] for each in safe_load(text)["scrape_configs"]]
    assert jobs == ["prometheus", "kestrel-manager", "kestrel-worker"]


def guards(task_name: str, **known: Any) -> bool:
    """Whether the role goes on at what it found on the host."""
    (task,) = (
        each
        for each in load(ROLES / "xmpp_server/tasks/ejabberd/guard.yml")
        if each["name"] == task_name
    )
    values = {**values_of("xmpp_server"), **EXAMPLE, **task.get("vars", {}), **known}
    return bool(render("{{ " + task["ansible.builtin.assert"]["that"] + " }}", values))


def test_an_ejabberd_that_may_have_accounts_is_left_alone() -> None:
    def goes_on(**result: Any) -> bool:
        return guards("Leave another ejabberd alone", __xmpp_server_used={"results": [result]})

    assert goes_on(rc=0, stdout_lines=[])
    assert not goes_on(rc=0, stdout_lines=["ada"])
    assert not goes_on(rc=3, stdout_lines=[]), "one that does not answer"


def test_it_is_not_stopped_before_a_certificate_that_may_be_wrong_is_there() -> None:
    """One that does not answer is left alone, as somebody else's, by the next run."""
    tasks = ROLES / "xmpp_server/tasks/ejabberd"
    [runs] = [each for each in load(tasks / "main.yml") if "block" in each]
    files = [each.get("ansible.builtin.import_tasks") for each in runs["block"]]
    stops = [
        file
        for file in files
        if file and not file.startswith("..")
        for each in load(tasks / file)
        if each.get("ansible.builtin.systemd_service", {}).get("state") == "stopped"
    ]
    assert stops == ["configure.yml"]
    assert files.index("../certificate.yml") < files.index("configure.yml")


def test_an_ejabberd_keeps_the_name_under_which_it_has_its_accounts() -> None:
    def goes_on(name: str, *, new: bool) -> bool:
        known = {"__xmpp_server_is_new": new, "__xmpp_server_former_node": {"stdout": name}}
        return guards("Require that this name stays", **known)

    assert goes_on("ejabberd@localhost", new=False)
    assert goes_on("ejabberd@elm.example.org", new=True)
    assert not goes_on("ejabberd@elm.example.org", new=False)


TWO = {
    "groups": {"xmpp_servers": ["oak", "elm"], "managers": ["oak"], "workers": ["w1"]},
    "hostvars": {"oak": {"ansible_host": "192.0.2.1"}, "elm": {"ansible_host": "192.0.2.2"}},
    "kestrel_server_address": "xmpp.example.org",
    "inventory_hostname": "elm",
    "ansible_host": "192.0.2.2",
}


def test_a_node_is_known_by_a_name_of_its_own_and_talks_to_others_over_tls() -> None:
    text = template("xmpp_server", "ejabberdctl.cfg.j2", **EXAMPLE | TWO)
    assert "ERLANG_NODE=ejabberd@elm.example.org\nINET_DIST_INTERFACE=0.0.0.0\n" in text
    assert "-proto_dist inet_tls -ssl_dist_optfile /etc/ejabberd/kestrel/nodes.conf" in text
    alone = template("xmpp_server", "ejabberdctl.cfg.j2", **EXAMPLE)
    assert "inet_tls" not in alone
    places = template("xmpp_server", "ejabberd_inetrc.j2", **EXAMPLE | TWO)
    assert '{host,{192,0,2,1}, ["oak.example.org"]}.\n' in places
    assert '{host,{192,0,2,2}, ["elm.example.org"]}.\n' in places


def test_a_node_believes_no_other_without_a_certificate() -> None:
    text = template("xmpp_server", "ejabberd_nodes.conf.j2", **EXAMPLE | TWO)
    assert text.count("{verify, verify_peer}") == 2
    assert "{fail_if_no_peer_cert, true}" in text


def test_a_node_has_a_certificate_for_its_own_address_and_for_that_of_all() -> None:
    values = {**EXAMPLE, **values_of("xmpp_server"), **TWO, "kestrel_domain": "example.org"}
    names = render(values["xmpp_server_certificate_names"], values)
    assert {"xmpp.example.org", "192.0.2.2", "elm.example.org", "example.org"} <= set(names)


def test_files_are_at_the_node_that_has_them() -> None:
    modules = configuration(**TWO)["append_host_config"]["users.example.org"]["modules"]
    assert modules["mod_http_upload"]["put_url"] == "https://192.0.2.2:5443/upload"


def test_what_changes_accounts_of_several_nodes_does_so_once() -> None:
    tasks = load(ROLES / "xmpp_server/tasks/ejabberd/accounts.yml")
    assert [task["name"] for task in tasks if not task.get("run_once")] == []
