"""Facts -> findings about the network and the swarm. Pure."""

from __future__ import annotations

import difflib
import re
import statistics
from collections.abc import Iterator

from blockserver.doctor.facts import Bootstrap, Facts, Internet, Port, Swarm
from blockserver.doctor.findings import Finding, error, ok, skipped, warning

MAX_CLOCK_SKEW_S = 3.0
"""hivemind's peers refuse to let a peer in whose clock differs by more."""

_VERSION = re.compile(r"sepal-(\d+)\.(\d+)\.(\d+)")


def check_addresses(facts: Facts) -> Iterator[Finding]:
    if facts.addresses_problem is not None:
        yield error(
            "addresses",
            facts.addresses_problem,
            "correct the address; the site's start page lists good ones",
            "sepal serve --help=initial-peers",
        )


def check_internet(facts: Facts) -> Iterator[Finding]:
    internet = facts.internet
    if internet.needs_ipv6 and not internet.ipv6:
        fix = "use the peers' IPv4 addresses (/ip4/…), or repair this machine's IPv6"
        yield error("internet", "addresses in IPv6 are given, but there is no IPv6 route here", fix, "ip -6 route show default")
    elif internet.needs_ipv4 and not internet.ipv4:
        fix = "use the peers' IPv6 addresses (/ip6/…) and listen on IPv6"
        yield error(
            "internet",
            "this machine has IPv6 only, and the addresses given are IPv4",
            fix,
            f"sepal doctor {facts.arguments} --host-maddrs /ip6/::/tcp/31330",
        )
    elif internet.only_ipv4_listens and internet.ipv6 and not internet.ipv4:
        yield error(
            "internet",
            "this machine has IPv6 only, and would listen on IPv4 only",
            "listen on IPv6",
            f"sepal serve {facts.arguments} --host-maddrs /ip6/::/tcp/31330",
        )
    else:
        yield ok("internet", _families(internet))


def _families(internet: Internet) -> str:
    found = [name for name, there in (("IPv4", internet.ipv4), ("IPv6", internet.ipv6)) if there]
    return " and ".join(found) or "none, and none is needed"


def check_bootstrap(facts: Facts) -> Iterator[Finding]:
    peers = facts.bootstraps
    if not peers:
        if facts.addresses_problem is None:
            yield skipped("bootstrap", "no --initial-peers given, so the swarm was not looked at")
        return
    speaking = [peer for peer in peers if peer.speaks_dht]
    foreign = [peer for peer in peers if peer.reached and not peer.speaks_dht]
    counted = f"{len(speaking)} of {len(peers)} bootstrap peers answer"
    if speaking and facts.swarm is not None and _is_another_swarm(facts.swarm, facts.site_models):
        yield error(
            "bootstrap",
            f"{counted}, but belong to another swarm than {facts.site}: they know none of its models",
            "take the addresses from the site's start page",
            f"sepal status --site {facts.site}",
        )
    elif speaking:
        yield ok("bootstrap", counted)
    elif foreign:
        yield error(
            "bootstrap",
            f"{foreign[0].address} answers, but is no peer of such a swarm ({foreign[0].detail})",
            "take the addresses from the swarm's own page",
            "sepal serve --help=initial-peers",
        )
    else:
        yield _nobody(peers)


def _nobody(peers: tuple[Bootstrap, ...]) -> Finding:
    host, port = _host_and_port(peers[0].address)
    return error(
        "bootstrap",
        f"{', '.join(peer.address for peer in peers)}: nobody answers",
        "is it running, is the address right, may this machine open outgoing connections?",
        f"nc -zv -w 5 {host} {port}",
    )


def _is_another_swarm(swarm: Swarm, site_models: tuple[str, ...] | None) -> bool:
    return bool(site_models) and not set(site_models or ()) & set(swarm.models)


def check_clock(facts: Facts) -> Iterator[Finding]:
    ahead = [peer.clock_ahead_s for peer in facts.bootstraps if peer.clock_ahead_s is not None]
    if not ahead:
        return
    skew = -statistics.median(ahead)
    if abs(skew) > MAX_CLOCK_SKEW_S:
        word = "ahead of" if skew > 0 else "behind"
        yield error(
            "clock",
            f"{abs(skew):.0f} s {word} the swarm's; what this server announces may be refused",
            "let the system keep the time",
            "sudo timedatectl set-ntp true",
        )
    else:
        yield ok("clock", f"within {max(abs(skew), 0.1):.1f} s of the swarm's")


def check_prefix(facts: Facts) -> Iterator[Finding]:
    if facts.prefix is None or facts.swarm is None:
        return
    models = facts.swarm.models
    if facts.prefix in models:
        own = facts.memory.num_blocks
        if own is not None and own != models[facts.prefix]:
            yield error(
                "prefix",
                f"{facts.prefix} has {models[facts.prefix]} blocks in the swarm, {own} in your folder: another model",
                "serve the model that the swarm has, or choose a prefix of your own",
                f"sepal serve {facts.arguments} --prefix {facts.prefix}-{own}",
            )
        else:
            yield ok("prefix", f"the swarm announces {facts.prefix}")
    elif meant := _meant(facts.prefix, tuple(models)):
        yield error(
            "prefix",
            f"no server for {facts.prefix}; the swarm announces {meant}",
            f"use --prefix {meant}",
            f"sepal serve {facts.arguments} --prefix {meant}",
        )
    else:
        yield ok("prefix", f"{facts.prefix} is new to the swarm; this would be its first server")


def _meant(prefix: str, announced: tuple[str, ...]) -> str | None:
    """The announced prefix that was probably meant: the same but for case and punctuation, or an ending such as `-hf`."""

    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower()).removesuffix("hf")

    same = [name for name in announced if plain(name) == plain(prefix)]
    return same[0] if same else next(iter(difflib.get_close_matches(prefix, announced, n=1, cutoff=0.9)), None)


def check_version(facts: Facts) -> Iterator[Finding]:
    own = _parsed(facts.own_version)
    others = [version for text in facts.swarm.versions if (version := _parsed(text))] if facts.swarm else []
    newer = [version for version in others if own and version > own]
    if not newer:
        return
    fact = f"{facts.own_version} here; {len(newer)} of {len(others)} servers of this kind run a newer one"
    upgrade = "upgrade", "python -m pip install --upgrade sepal"
    # A single stranger may claim any version; most of them do not.
    yield error("version", fact, *upgrade) if 2 * len(newer) > len(others) else warning("version", fact, *upgrade)


def _parsed(text: str) -> tuple[int, ...] | None:
    match = _VERSION.match(text)
    return tuple(map(int, match.groups())) if match else None


def check_site(facts: Facts) -> Iterator[Finding]:
    if facts.site is None:
        return
    if facts.site_problem is not None:
        yield warning(
            "site",
            facts.site_problem,
            "a server goes on without it, and decides by itself",
            f"curl -sS {facts.site}/api/v1/models",
        )
    else:
        yield ok("site", f"{facts.site} answers")


def check_port(facts: Facts) -> Iterator[Finding]:
    port = facts.port
    if port is None:
        return
    if port.taken is not None:
        yield error(
            "port", port.taken, "stop the other program, or choose another port", f"sepal serve {facts.arguments} --port 0"
        )
    elif port.reachable is None:
        yield skipped("port", f"nobody could be asked whether it is open ({port.detail or 'no site, no peer'})")
    elif port.reachable:
        yield ok("port", f"{_tcp(port)} is open ({port.detail})")
    else:
        fix = "open and forward it, or continue by relay (slower)" if facts.relay else "open and forward it, or allow a relay"
        yield error(
            "port", f"{_tcp(port)} is closed from outside: {port.detail}", fix, f"sepal serve {facts.arguments} --relay"
        )


def check_token(facts: Facts) -> Iterator[Finding]:
    hub = facts.hub
    if hub is None or not hub.token_given:
        return
    if hub.status in (401, 403):
        yield error(
            "token",
            f"{hub.address} refuses the token (HTTP {hub.status})",
            f"make a new one at {hub.address}/settings/tokens",
            "export SEPAL_TOKEN=…",
        )
    elif hub.status == 200:
        yield ok("token", f"{hub.address} knows it")
    else:
        said = hub.error or f"HTTP {hub.status}"
        yield warning("token", f"{hub.address} could not be asked ({said})", "try again later", f"curl -sSI {hub.address}")


def _tcp(port: Port) -> str:
    _, number = _host_and_port(port.listen[0]) if port.listen else ("", "")
    return f"{number}/tcp" if number not in ("", "0") else "the port"


def _host_and_port(address: str) -> tuple[str, str]:
    parts = address.split("/")
    return (parts[2], parts[4]) if len(parts) > 4 else (address, "")
