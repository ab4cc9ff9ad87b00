"""DHT keys: `PREFIX.INDEX` for each served block with peer ids as subkeys, `_petals.models` for the index of models."""

from __future__ import annotations

import re

import base58

from swarm.errors import BadRecord

MODELS_KEY = "_petals.models"

MAX_BLOCKS = 2_048
"""Blocks a model may claim. The largest open models have 126; each claimed block costs every reader a look-up, and one record
claiming 20,000 has killed a Petals monitor."""

MAX_PREFIX_LENGTH = 128
"""Characters. The longest names on the public hub have 96."""

_PREFIX = re.compile(r"[A-Za-z0-9_\-]+")
_PEER_ID_LOOKS = re.compile(r"(Qm|12D3KooW)[1-9A-HJ-NP-Za-km-z]{44}")
_PEER_ID_LENGTHS = (34, 38)
"""Bytes of a sha2-256 multihash (RSA keys, `Qm…`) and of an inlined Ed25519 public key (`12D3KooW…`)."""


def block_uid(prefix: str, block: int) -> str:
    return f"{prefix}.{block}"


def parse_prefix(value: object) -> str:
    """Petals joins prefix and index by a dot and uids by a space, so a prefix holds neither."""
    if not isinstance(value, str):
        raise BadRecord("prefix", f"a model prefix is text, not {type(value).__name__}")
    if len(value) > MAX_PREFIX_LENGTH or not _PREFIX.fullmatch(value):
        raise BadRecord("prefix", f"{value[:40]!r} is no model prefix (letters, digits, - and _ only)")
    return value


def looks_like_peer_id(value: object) -> bool:
    """A glance, for sorting a flood: letters and length are right."""
    return isinstance(value, str) and bool(_PEER_ID_LOOKS.fullmatch(value))


def parse_peer_id(value: object) -> str:
    """A libp2p peer id in base58, as it stands in the subkey of a server's record."""
    if not isinstance(value, str):
        raise BadRecord("subkey", f"a peer id is text, not {type(value).__name__}")
    try:
        raw = base58.b58decode(value) if len(value) <= 64 else b""
    except ValueError:
        raw = b""
    if len(raw) not in _PEER_ID_LENGTHS or raw[:2] not in (b"\x12\x20", b"\x00\x24"):
        raise BadRecord("subkey", f"{value[:64]!r} is no peer id")
    return value


def default_prefix(repository: str) -> str:
    """The prefix under which Petals announces a repository: its last path component, Llama with `-hf`, dots as dashes."""
    name = repository.rstrip("/").rsplit("/", 1)[-1]
    if "llama" in name.lower() and not name.endswith("-hf"):
        name += "-hf"
    return parse_prefix(re.sub(r"[^A-Za-z0-9_\-]", "-", name))
