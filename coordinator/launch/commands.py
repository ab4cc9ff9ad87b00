"""The commands and environments of every process, as lists. Pure: the launcher, docker-compose.yml and deploy/ share them.

`python` and `sepal` are the programs to use: full paths for the launcher, plain names in a container.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOOPBACK_MADDR: Final = "/ip4/127.0.0.1/tcp/0"
CRAWL_QUEUE: Final = "crawl"
DEFAULT_QUEUE: Final = "default"


def web(python: str, host: str, port: int) -> list[str]:
    return [python, "-m", "coordinator.web", "--host", host, "--port", str(port)]


def crawl(python: str) -> list[str]:
    """Threads, not processes: they share one long-lived DHT node. The settings say how many, by the number of swarms."""
    return [*_worker(python, CRAWL_QUEUE), "--pool", "threads"]


def worker(python: str) -> list[str]:
    return [*_worker(python, DEFAULT_QUEUE), "--concurrency", "2"]


def _worker(python: str, queue: str) -> list[str]:
    return [
        *(python, "-m", "celery", "-A", "coordinator", "worker", "-Q", queue, "-n", f"{queue}@%h"),
        *("--loglevel", "INFO", "--without-gossip", "--without-mingle"),
    ]


def beat(python: str, schedule: str, pid_file: str = "") -> list[str]:
    """Without a pid file by default: after a kill -9 a stale one would keep the next beat from starting."""
    return [python, "-m", "celery", "-A", "coordinator", "beat", "--schedule", schedule, "--pidfile", pid_file]


def migrate(python: str) -> list[str]:
    return [python, "manage.py", "migrate", "--no-input"]


def make_staff(python: str, name: str, *, made_up: bool) -> list[str]:
    return [python, "manage.py", "make_staff", name, *(["--made-up"] if made_up else [])]


def demo_model(python: str, folder: str) -> list[str]:
    return [python, "-m", "blockserver.model.demo_model", folder]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    host_maddr: str = LOOPBACK_MADDR
    identity_path: str
    ready_file: str
    initial_peers: tuple[str, ...] = ()

    def command(self, sepal: str) -> list[str]:
        return [
            *(sepal, "bootstrap", "--host-maddrs", self.host_maddr, "--identity-path", self.identity_path),
            *("--ready-file", self.ready_file, "--no-nat-port-map", "--no-relay"),
            *(("--initial-peers", *self.initial_peers) if self.initial_peers else ()),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    name: str
    model: str
    initial_peers: tuple[str, ...]
    coordinator: str
    num_blocks: int
    host_maddr: str = LOOPBACK_MADDR
    identity_path: str
    ready_file: str

    def command(self, sepal: str) -> list[str]:
        """Short periods, so that one can watch a swarm heal; a volunteer's server uses the defaults."""
        return [
            *(sepal, "serve", self.model, "--initial-peers", *self.initial_peers, "--coordinator", self.coordinator),
            *("--num-blocks", str(self.num_blocks), "--host-maddrs", self.host_maddr),
            *("--identity-path", self.identity_path, "--ready-file", self.ready_file),
            *("--no-nat-port-map", "--no-relay"),
            *("--hint-interval", "3", "--public-name", self.name, "--update-period", "30"),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    model: str
    initial_peers: tuple[str, ...]
    site: str
    host: str
    port: int
    ready_file: str

    def command(self, sepal: str) -> list[str]:
        return [
            *(sepal, "gateway", "--model", self.model, "--initial-peers", *self.initial_peers, "--site", self.site),
            *("--host", self.host, "--port", str(self.port), "--ready-file", self.ready_file),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEnvironment:
    database_url: str
    redis_url: str
    secret_key: str
    url: str
    swarm: str
    initial_peers: str
    crawl_interval_s: float
    gateway_url: str = ""

    def variables(self) -> dict[str, str]:
        return {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "SEPAL_SECRET_KEY": self.secret_key,
            "SEPAL_URL": self.url,
            "SEPAL_SWARM": self.swarm,
            "SEPAL_INITIAL_PEERS": self.initial_peers,
            "SEPAL_JOIN_ADDRESSES": self.initial_peers,
            "SEPAL_CRAWL_INTERVAL_S": f"{self.crawl_interval_s:g}",
            "SEPAL_GATEWAY_URL": self.gateway_url,
            "SEPAL_ALLOWED_HOSTS": "127.0.0.1,localhost",
            "DJANGO_SETTINGS_MODULE": "coordinator.settings",
        }
