"""The gateway's settings, checked where they are made, and its limits with their reasons."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from blockserver.client.session import Patience
from blockserver.client.stream import Limits
from blockserver.config import DTYPES
from blockserver.gateway.manner import NOT_SAID, Manner
from blockserver.site import is_address
from swarm.errors import LocalError

MAX_BODY = 256 * 1024
"""Bytes of a request: several times the longest context that a session holds."""
LONGEST_KEY = 512
MOST_TOP_K = 1_000_000
"""Beyond every vocabulary."""
QUIET_S = 14.0
"""Without a token for so long an answer that has begun is given up: whoever waits is told within 15 s."""
FIRST_TOKEN_S = 120.0
"""The prompt takes longer than a token, and those of others come first. Nothing has been sent then, so an error is still an
HTTP error, and SDKs wait for ten minutes ..."""
PROMPT_TOKEN_S = 0.05
"""... and by this for each of its tokens, on slow volunteers' CPUs."""
WAIT_S = 120.0
"""In the queue. Answers take seconds; whoever has waited for two minutes has waited in vain."""
PING_S = 10.0
"""A comment in a silent stream keeps proxies from closing it."""
SEND_S = 30.0
"""A reader that takes nothing for so long is gone."""
LOOK_S = 10.0
"""Between two looks at p2pd and at the model's blocks."""
STOP_S = 3.0
"""For streams to say that the gateway stops."""

PATIENCE = Patience(attempts=7, first_pause_s=0.1, longest_pause_s=2.0)
"""Other servers are looked for so often that a broken answer is mended or given up before QUIET_S."""
SERVER_LIMITS = Limits(open_s=8.0, step_s=9.0, token_s=0.5)
"""A server that dies is noticed at once; one that is silent is replaced while a part of QUIET_S is left to do so. Not sooner:
it may be busy with the prompts of others, and whoever gives a busy server up makes the next one busier. A prompt gets time by
its length."""


@dataclass(frozen=True, kw_only=True)
class GatewayConfig:
    model: Path
    initial_peers: tuple[str, ...]
    prefix: str | None = None
    dtype: str = "auto"
    """Of embeddings, head, and what is sent to servers; the checkpoint's own by default."""
    host: str = "127.0.0.1"
    """Where to listen. Behind a proxy, with TLS there, this machine's loopback is right."""
    port: int = 8900
    """0 takes a free one."""
    site: str | None = None
    """Address of the site that watches the swarm, named where blocks have no server."""
    coordinator: str | None = None
    """The site to tell, once a minute at most, which servers failed and how fast they were. None: nobody is told."""
    api_keys: tuple[str, ...] = ()
    """Without any, everybody who can connect may ask."""
    trusted_proxies: tuple[str, ...] = ("127.0.0.0/8", "::1")
    """Whose X-Forwarded-For is believed."""
    max_concurrent: int = 16
    """Answers at once."""
    max_waiting: int = 64
    max_waiting_each: int = 8
    """Of one caller."""
    max_length: int = 4_096
    """Tokens of prompt and answer together; less where the model's context is shorter."""
    manner: Manner = NOT_SAID
    """How the model speaks where a request does not say; what is not said here, the model's authors may have recommended."""
    relay: bool = False
    """Whether to reach servers behind a NAT through other peers. Off, only the addresses that servers announce are dialled."""
    ready_file: Path | None = None

    def __post_init__(self) -> None:
        _check(bool(self.initial_peers), "--initial-peers: at least one address is needed")
        _check(self.dtype in DTYPES, f"--dtype {self.dtype}: choose one of {', '.join(DTYPES)}")
        _check(0 <= self.port < 65_536, f"--port {self.port}: a port number, or 0 for any")
        for name in ("max_concurrent", "max_waiting", "max_waiting_each", "max_length"):
            least = 0 if name == "max_waiting" else 1
            _check(getattr(self, name) >= least, f"--{name.replace('_', '-')} {getattr(self, name)}: at least {least}")
        for flag, value, most in (
            ("temperature", self.manner.temperature, 2),
            ("top-p", self.manner.top_p, 1),
            ("top-k", self.manner.top_k, MOST_TOP_K),
        ):
            _check(value is None or 0 <= value <= most, f"--{flag} {value}: 0 to {most} is expected")
        _check(self.manner.top_p != 0, "--top-p 0: above 0 is expected")
        for key in self.api_keys:
            _check(
                0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable() and " " not in key,
                "--api-keys: visible ASCII characters without blanks are expected",
            )
        for proxy in self.trusted_proxies:
            _check(_is_network(proxy), f"--trusted-proxies {proxy}: an address or network such as 10.0.0.0/8 is expected")
        for flag, address in (("--site", self.site), ("--coordinator", self.coordinator)):
            if address is not None:
                _check(is_address(address), f"{flag} {address}: an address such as https://swarm.example is expected")


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LocalError(otherwise)
