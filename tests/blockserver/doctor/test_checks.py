"""Each fault is a value: it is found, with a fix, exit code 3 and one command. A healthy host gives no false alarm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from blockserver.doctor.code import code_of
from blockserver.doctor.facts import Bootstrap, Facts, Folder, Gpu, Hub, Identity, Internet, Memory, Port, Swarm
from blockserver.doctor.findings import Level
from blockserver.doctor.report import diagnose, to_json
from swarm.wire.doctor import CHECKS, Mark, decode

PEER = "/ip4/203.0.113.5/tcp/31330/p2p/12D3KooWGBfKqTqgjMuCgDe6bqXQbxhhWN5AmKAwX6oFPkSVmaCe"
STATE, CACHE, KEY = Path("/var/lib/sepal"), Path("/var/cache/sepal"), Path("/var/lib/sepal/server.id")

HEALTHY = Facts(
    own_version="sepal-1.2.0",
    gpu=Gpu(hardware=("NVIDIA card at PCI 0000:01:00.0",), usable=("cuda:0 (RTX 4090, 22.9 GB free)",), torch_has_cuda=True),
    memory=Memory(22_900_000_000, 1_100_000_000, 16, None, 126),
    open_files_limit=524_288,
    folders=(Folder("state", STATE, 812_000_000_000, 50_000_000), Folder("cache", CACHE, 812_000_000_000, 2_000_000_000)),
    identity=Identity(KEY, 0o600),
    prefix="Llama-405B-hf",
    bootstraps=(Bootstrap(PEER, reached=True, speaks_dht=True, clock_ahead_s=0.2),),
    swarm=Swarm({"Llama-405B-hf": 126}, ("sepal-1.2.0", "2.3.0.dev2", "sepal-1.1.0")),
    site="https://swarm.example",
    site_models=("Llama-405B-hf",),
    port=Port(("/ip4/0.0.0.0/tcp/31330",), reachable=True, detail="the site: reached"),
    internet=Internet(ipv4=True, ipv6=True, needs_ipv4=True, needs_ipv6=False, only_ipv4_listens=True),
    hub=Hub("https://hub.example", token_given=True, status=200),
    arguments="llama --initial-peers " + PEER,
)
HEALTHY = replace(HEALTHY, memory=replace(HEALTHY.memory, num_blocks=126))

LESS_THAN_HEALTHY_BUT_FINE = {
    "no GPU at all": replace(HEALTHY, gpu=Gpu()),
    "no GPU, a torch with CUDA": replace(HEALTHY, gpu=Gpu(torch_has_cuda=True)),
    "nothing was given": Facts("sepal-1.2.0", Gpu(), Memory(8_000_000_000), 524_288),
    "first server of a swarm": replace(HEALTHY, swarm=Swarm({}), site_models=()),
    "a second model in a swarm": replace(HEALTHY, prefix="Qwen3-8B"),
    "only older servers and Petals'": replace(HEALTHY, swarm=Swarm({"Llama-405B-hf": 126}, ("2.3.0", "sepal-0.9.9"))),
    "clock a second off": replace(HEALTHY, bootstraps=(replace(HEALTHY.bootstraps[0], clock_ahead_s=-1.0),)),
    "one of two bootstrap peers": replace(HEALTHY, bootstraps=(*HEALTHY.bootstraps, Bootstrap(PEER, reached=False))),
    "nobody can say whether the port is open": replace(HEALTHY, port=Port(("/ip4/0.0.0.0/tcp/0",))),
    "IPv4 only": replace(HEALTHY, internet=Internet(True, False, True, False, True)),
    "IPv6 only, in use": replace(HEALTHY, internet=Internet(False, True, False, True, False)),
    "loopback only": replace(HEALTHY, internet=Internet(False, False, False, False, False)),
    "no token": replace(HEALTHY, hub=None),
    "a new identity": replace(HEALTHY, identity=Identity(KEY)),
    "fewer blocks than fit": replace(HEALTHY, memory=replace(HEALTHY.memory, wanted=4)),
    "the swarm could not be read": replace(HEALTHY, swarm=None),
}


def boots(**more: object) -> tuple[Bootstrap, ...]:
    return (replace(HEALTHY.bootstraps[0], **more),)  # type: ignore[arg-type]


FAULTS: dict[str, tuple[Facts, str, str, str, str]] = {
    # fault: facts, name of the finding, a part of its fact, of its fix, of the next command
    "closed port": (
        replace(HEALTHY, port=Port(("/ip4/0.0.0.0/tcp/31330",), False, "the site: timeout after 5 s")),
        "port", "31330/tcp is closed from outside: the site: timeout", "forward it, or continue by relay", "sepal serve llama",
    ),
    "port in use": (
        replace(HEALTHY, port=Port(("/ip4/0.0.0.0/tcp/31330",), taken="cannot listen on …: Address already in use")),
        "port", "already in use", "another port", "--port 0",
    ),
    "clock ahead": (
        replace(HEALTHY, bootstraps=boots(clock_ahead_s=-12.0)),
        "clock", "12 s ahead of the swarm's", "keep the time", "timedatectl set-ntp true",
    ),
    "clock behind": (
        replace(HEALTHY, bootstraps=boots(clock_ahead_s=3600.0)),
        "clock", "3600 s behind the swarm's", "keep the time", "timedatectl set-ntp true",
    ),
    "full disk": (
        replace(HEALTHY, folders=(Folder("cache", CACHE, 300_000_000, 2_000_000_000),)),
        "disk", "0.3 GB free at /var/cache/sepal, 2.0 GB are needed", "--cache-dir", "df -h /var/cache/sepal",
    ),
    "wrong prefix": (
        replace(HEALTHY, prefix="Llama-405B"),
        "prefix", "the swarm announces Llama-405B-hf", "--prefix Llama-405B-hf", "--prefix Llama-405B-hf",
    ),
    "another model under the prefix": (
        replace(HEALTHY, memory=replace(HEALTHY.memory, num_blocks=80)),
        "prefix", "126 blocks in the swarm, 80 in your folder", "prefix of your own", "--prefix Llama-405B-hf-80",
    ),
    "no driver": (
        replace(HEALTHY, gpu=Gpu(("NVIDIA card at PCI 0000:01:00.0",), (), True, "Found no NVIDIA driver on your system")),
        "gpu", "cannot be used: Found no NVIDIA driver", "driver", "nvidia-smi",
    ),
    "a torch without CUDA": (
        replace(HEALTHY, gpu=Gpu(("NVIDIA card at PCI 0000:01:00.0",))),
        "gpu", "torch was built without CUDA", "torch with CUDA", "pip install",
    ),
    "bad token": (
        replace(HEALTHY, hub=Hub("https://hub.example", token_given=True, status=401)),
        "token", "refuses the token (HTTP 401)", "https://hub.example/settings/tokens", "export SEPAL_TOKEN=",
    ),
    "IPv6 only": (
        replace(HEALTHY, internet=Internet(False, True, True, False, True)),
        "internet", "IPv6 only, and the addresses given are IPv4", "/ip6/", "--host-maddrs /ip6/::/tcp/",
    ),
    "IPv6 only, listening on IPv4": (
        replace(HEALTHY, internet=Internet(False, True, False, True, True)),
        "internet", "listen on IPv4 only", "listen on IPv6", "--host-maddrs /ip6/::/tcp/",
    ),
    "broken IPv6": (
        replace(HEALTHY, internet=Internet(True, False, False, True, True)),
        "internet", "no IPv6 route", "IPv4 addresses", "ip -6 route",
    ),
    "old version": (
        replace(HEALTHY, swarm=Swarm({"Llama-405B-hf": 126}, ("sepal-1.3.0", "sepal-1.10.0", "sepal-1.2.0"))),
        "version", "2 of 3 servers of this kind run a newer one", "upgrade", "--upgrade sepal",
    ),
    "bad multiaddress": (
        replace(HEALTHY, addresses_problem="address 1 is no multiaddress", bootstraps=(), swarm=None, port=None),
        "addresses", "address 1", "correct the address", "sepal serve --help=initial-peers",
    ),
    "nobody at the address": (
        replace(HEALTHY, bootstraps=(Bootstrap(PEER, reached=False),), swarm=None, port=None),
        "bootstrap", "nobody answers", "outgoing connections", "nc -zv -w 5 203.0.113.5 31330",
    ),
    "foreign bootstrap": (
        replace(HEALTHY, bootstraps=(Bootstrap(PEER, True, detail="protocols not supported"),), swarm=None, port=None),
        "bootstrap", "is no peer of such a swarm (protocols not supported)", "the swarm's own page", "sepal serve --help",
    ),
    "bootstrap of another swarm": (
        replace(HEALTHY, swarm=Swarm({"somebody-elses": 12})),
        "bootstrap", "belong to another swarm than https://swarm.example", "start page", "sepal status --site https://swarm.example",
    ),
    "unwritable state folder": (
        replace(HEALTHY, folders=(Folder("state", STATE, None, 1, "/var/lib belongs to somebody else"),)),
        "state folder", "cannot be written", "--state-dir", "sudo install -d -o",
    ),
    "too little memory": (
        replace(HEALTHY, memory=Memory(700_000_000, 1_100_000_000, 0, None, 126)),
        "memory", "0.7 GB free, and a block with its cache takes 1.1 GB", "smaller", "--cache-tokens 512",
    ),
    "more blocks than fit": (
        replace(HEALTHY, memory=replace(HEALTHY.memory, wanted=40)),
        "memory", "16 blocks fit, 40 are wanted", "serve 16 blocks", "--num-blocks 16",
    ),
    "identity readable by others": (
        replace(HEALTHY, identity=Identity(KEY, 0o644)),
        "identity", "may be read by others (mode 644)", "owner", "chmod 600 /var/lib/sepal/server.id",
    ),
    "broken identity": (
        replace(HEALTHY, identity=Identity(KEY, problem="it holds no private key (DecodeError)")),
        "identity", "holds no private key", "a new one is made", "mv /var/lib/sepal/server.id",
    ),
    "few open files": (
        replace(HEALTHY, open_files_limit=1_024),
        "open files", "at most 1024", "LimitNOFILE", "ulimit -n 4096",
    ),
    "no such model": (
        replace(HEALTHY, model_problem="there is no model folder llama"),
        "model", "no model folder", "config.json", "sepal serve --help=model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("facts", [HEALTHY, *LESS_THAN_HEALTHY_BUT_FINE.values()], ids=["healthy", *LESS_THAN_HEALTHY_BUT_FINE])
def test_no_false_alarm(facts: Facts) -> None:
    found = diagnose(facts)
    assert [finding for finding in found.findings if finding.level in (Level.ERROR, Level.WARNING)] == []
    assert found.is_well
    assert found.summary() == "nothing is wrong"
    assert found.next_command == f"sepal serve {facts.arguments}".strip()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_found_alone_with_its_fix_and_one_command(fault: str) -> None:
    facts, name, fact, fix, command = FAULTS[fault]
    found = diagnose(facts)
    (finding,) = [one for one in found.findings if one.level is not Level.OK and one.level is not Level.SKIPPED]
    assert (finding.name, finding.level) == (name, Level.ERROR)
    assert fact.lower() in finding.fact.lower()
    assert fix in finding.fix
    assert command in finding.command
    assert found.next_command == finding.command
    assert not found.is_well
    assert found.summary() == "1 error"


def test_there_are_more_than_a_dozen_faults() -> None:
    assert len(FAULTS) >= 12


def test_of_several_faults_the_first_to_heal_comes_first() -> None:
    facts = replace(
        FAULTS["closed port"][0], gpu=FAULTS["no driver"][0].gpu, site_problem="https://swarm.example does not answer"
    )
    found = diagnose(facts)
    assert found.summary() == "2 errors, 1 warning"
    assert found.next_command == "nvidia-smi"


def test_a_single_stranger_with_a_high_version_is_a_warning_only() -> None:
    swarm = Swarm({"Llama-405B-hf": 126}, ("sepal-99.0.0", "sepal-1.2.0", "sepal-1.2.0"))
    found = diagnose(replace(HEALTHY, swarm=swarm))
    assert found.is_well
    assert found.summary() == "1 warning"
    assert "--upgrade" in found.next_command


def test_a_lost_site_stops_nobody() -> None:
    found = diagnose(replace(HEALTHY, site_problem="https://swarm.example does not answer", site_models=None))
    assert found.is_well
    assert found.count(Level.WARNING) == 1


def test_json_says_the_same() -> None:
    said = to_json(diagnose(FAULTS["bad token"][0]))
    assert (said["well"], said["errors"], said["warnings"]) == (False, 1, 0)
    assert said["next_command"] == "export SEPAL_TOKEN=…"


@pytest.mark.parametrize("name", FAULTS)
def test_the_code_for_the_site_says_what_is_wrong_and_nothing_else(name: str) -> None:
    found = diagnose(FAULTS[name][0])
    read = decode(code_of(found))
    assert {one.name for one in found.findings if one.level is Level.ERROR} == {
        n for n, mark in read.items() if mark is Mark.ERROR
    }
    assert {one.name for one in found.findings if one.level is Level.WARNING} == {
        n for n, mark in read.items() if mark is Mark.WARNING
    }
    assert to_json(found)["code"] == code_of(found)


def test_every_check_has_a_place_in_the_code() -> None:
    named = {one.name for facts, *_ in FAULTS.values() for one in diagnose(facts).findings}
    named |= {one.name for facts in (HEALTHY, *LESS_THAN_HEALTHY_BUT_FINE.values()) for one in diagnose(facts).findings}
    assert named == set(CHECKS)
