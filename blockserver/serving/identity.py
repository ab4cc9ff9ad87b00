"""The server's private key, as p2pd reads it from its identity file: with it questions to the coordinator are signed."""

from __future__ import annotations

from pathlib import Path

from swarm.errors import LocalError
from swarm.wire.identity import Signer


def read_signer(path: Path) -> Signer:
    """LocalError where the file cannot be read, or holds no Ed25519 or RSA key of libp2p's."""
    try:
        return Signer.from_identity(path.read_bytes())
    except OSError as error:
        raise LocalError(f"the identity file {path} cannot be read ({error.strerror})") from error
    except LocalError as error:
        raise LocalError(f"{path}: {error}") from error
