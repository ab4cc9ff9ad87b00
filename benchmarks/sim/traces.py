"""Volunteers: which machines come when, how long they stay, what they can do. One trace serves all arms: they are paired.

Sessions are Weibull with a falling hazard around each host's own scale, which is log-normal; arrivals are Poisson, by day more
than by night where asked; the swarm starts in its steady state, with ages to match. Hardware: six classes of GPU, 4-bit
blocks, lines of log-normal speed, a third behind a relay.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

HOUR = 3600.0
SHAPE = 0.6
MEDIAN_SCALE_S, SPREAD = 4 * HOUR, 1.2
MEAN_SESSION_S = MEDIAN_SCALE_S * math.exp(SPREAD**2 / 2) * math.gamma(1 + 1 / SHAPE)
CRASHES, RELAYED = 0.5, 0.35
RELAY_SHARE = 0.2
# GPU memory in GB, share of hosts, effective TFLOP/s.
CLASSES = ((8, 0.20, 12), (12, 0.25, 20), (16, 0.15, 25), (24, 0.25, 40), (48, 0.10, 60), (80, 0.05, 150))
OVERHEAD_GB = 2.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A model's blocks: GB each with its share of cache, GFLOP for a token, bits of a token's hidden states."""

    gb: float
    gflop: float
    bits: float


WORKLOADS = {80: Workload(0.70, 1.7, 16 * 8192), 126: Workload(2.1, 6.4, 16 * 16384)}


@dataclass(frozen=True, slots=True)
class Host:
    """One session of one machine. `rate` is the true figure; `luck` seeds what happens to this host in any arm."""

    name: str
    joins: float
    leaves: float
    born: float
    crashes: bool
    blocks: int
    rate: float
    liar: bool
    follows: bool
    luck: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What is varied: shares of liars and of followers, whether liars are busy whenever they are to be measured, day and night,
    sites that fail together, slow loads."""

    servers: int
    blocks: int
    days: float
    liars: float = 0.0
    evades: bool = False
    follows: float = 1.0
    diurnal: float = 0.0
    site_failures_per_day: float = 0.0
    load_factor: float = 1.0
    outage_h: float = 0.0
    kill_every_h: float = 0.0


WARM_UP_S = 3 * HOUR


def trace(scene: Scene, seed: int) -> list[Host]:
    """All sessions that touch the simulated time, in order of their beginning. Time 0 is the steady state."""
    draw = random.Random(f"trace {seed}")
    end = WARM_UP_S + scene.days * 24 * HOUR
    hosts = [_host(scene, draw, f"a{number}", *_running(draw)) for number in range(scene.servers)]
    now, number = 0.0, 0
    peak = scene.servers / MEAN_SESSION_S * (1 + scene.diurnal)
    while (now := now + draw.expovariate(peak)) < end:
        wave = 1 + scene.diurnal * math.sin(2 * math.pi * now / (24 * HOUR))
        if draw.random() * (1 + scene.diurnal) < wave:
            hosts.append(_host(scene, draw, f"b{number}", now, now + _session(draw, _scale(draw)), now))
        number += 1
    return _with_site_failures(scene, hosts, random.Random(f"sites {seed}"), end)


def _running(draw: random.Random) -> tuple[float, float, float]:
    """A session met at a random instant: long ones are met more often."""
    options = [_session(draw, _scale(draw)) for _ in range(200)]
    session = draw.choices(options, weights=options)[0]
    age = draw.uniform(0, session)
    return 0.0, session - age, -age


def _scale(draw: random.Random) -> float:
    return draw.lognormvariate(math.log(MEDIAN_SCALE_S), SPREAD)


def _session(draw: random.Random, scale: float) -> float:
    return draw.weibullvariate(scale, SHAPE)


def _host(scene: Scene, draw: random.Random, name: str, joins: float, leaves: float, born: float) -> Host:
    work = WORKLOADS[scene.blocks]
    memory, _, tflops = draw.choices(CLASSES, weights=[share for _, share, _ in CLASSES])[0]
    blocks = max(1, min(scene.blocks, int((memory - OVERHEAD_GB) / work.gb)))
    network = draw.lognormvariate(math.log(50e6), 1.0) / work.bits * (RELAY_SHARE if draw.random() < RELAYED else 1.0)
    rate = min(2 * tflops * 1e3 / work.gflop / (blocks + 1), network)
    crashes, lies, follows = draw.random() < CRASHES, draw.random() < scene.liars, draw.random() < scene.follows
    return Host(name, joins, leaves, born, crashes, blocks, rate, lies, follows, draw.getrandbits(48))


def _with_site_failures(scene: Scene, hosts: list[Host], draw: random.Random, end: float) -> list[Host]:
    """Every tenth host is of the site that fails: all of it crashes at once."""
    if not scene.site_failures_per_day:
        return hosts
    now = 0.0
    while (now := now + draw.expovariate(scene.site_failures_per_day / (24 * HOUR))) < end:
        site = draw.randrange(10)
        hosts = [
            replace(host, leaves=now, crashes=True) if host.joins < now < host.leaves and host.luck % 10 == site else host
            for host in hosts
        ]
    return hosts
