"""The file with a server's private key: p2pd reads it, and questions to the coordinator are signed with it.

Where the operator gives no file, a key is made for this run and its file is gone as soon as p2pd has it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from swarm.errors import LocalError
from swarm.wire.identity import Signer


@contextlib.contextmanager
def open_identity(path: Path | None) -> Iterator[tuple[Path, Signer]]:
    """The file to start the node with, and the key in it. A file that is missing is made, with a new Ed25519 key."""
    if path is not None:
        if not path.exists():
            _write(path, Signer.from_seed(secrets.token_bytes(32)))
        yield path, _read(path)
        return
    signer = Signer.from_seed(secrets.token_bytes(32))
    with tempfile.TemporaryDirectory(prefix="sepal-") as folder:
        made = Path(folder) / "identity"
        _write(made, signer)
        yield made, signer


def _read(path: Path) -> Signer:
    try:
        return Signer.from_identity(path.read_bytes())
    except OSError as error:
        raise LocalError(f"the identity file {path} cannot be read ({error.strerror})") from error
    except LocalError as error:
        raise LocalError(f"{path}: {error}") from error


def _write(path: Path, signer: Signer) -> None:
    """Readable by its owner only, from the first byte on."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    except OSError as error:
        raise LocalError(f"the identity file {path} cannot be written ({error.strerror})") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(signer.to_identity())
