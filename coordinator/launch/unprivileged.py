"""Postgres refuses to run as root, so root runs the services as another user, who may not reach root's folders.

Knows users and paths; does not know what is run. Where the run folder or the binaries lie below a folder that the other
user cannot enter (a 0700 home is the usual case), both are kept under /var/lib/sepal-launcher, which only root can write.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swarm.errors import LocalError

ELSEWHERE = Path("/var/lib/sepal-launcher")
NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Identity:
    uid: int
    gid: int

    def can(self, test: str, path: Path) -> bool:
        """Asks the kernel, as that user: mode bits, ACLs and every folder on the way count. `test` as in test(1)."""
        try:
            asked = subprocess.run(
                ["test", test, str(path)], user=self.uid, group=self.gid, extra_groups=[], cwd="/", check=False
            )
        except OSError:
            return False
        return asked.returncode == 0

    def own(self, path: Path) -> None:
        os.chown(path, self.uid, self.gid)


def other_identity(data_folders: Sequence[Path]) -> Identity | None:
    """None where we are not root. The owner of data that an ordinary user made goes on owning it."""
    if os.geteuid() != 0:
        return None
    for folder in data_folders:
        if folder.is_dir() and (owner := folder.stat()).st_uid != 0:
            return Identity(owner.st_uid, owner.st_gid)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        return Identity(NOBODY, NOBODY)
    return Identity(nobody.pw_uid, nobody.pw_gid)


def service_home(run_dir: Path, identity: Identity | None) -> Path:
    """Where the services keep their data: the run folder if they can enter it."""
    if identity is None or identity.can("-x", run_dir):
        return run_dir
    # Passing through is enough: what is inside has modes of its own.
    run_dir.chmod(run_dir.stat().st_mode | stat.S_IXOTH)
    if identity.can("-x", run_dir):
        return run_dir
    key = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:12]
    home = ELSEWHERE / f"run-{key}"
    try:
        ELSEWHERE.mkdir(mode=0o755, parents=True, exist_ok=True)
        home.mkdir(mode=0o711, exist_ok=True)
    except OSError as error:
        raise LocalError(
            f"As root, Postgres must run as another user, who cannot enter {run_dir}, and {home} cannot be made "
            f"({error.strerror}). Choose a folder that everybody can enter with --run-dir, or do not start as root."
        ) from error
    if ELSEWHERE.stat().st_uid != 0 or not identity.can("-x", home):
        raise LocalError(
            f"{home} is not root's, or user id {identity.uid} cannot enter it. Choose another folder with --run-dir."
        )
    _leave_a_sign(run_dir / "services", home)
    return home


def within_reach(parts: Sequence[Path], root: Path, binary: Path, shelf: Path, identity: Identity | None) -> Path:
    """`binary`, or a copy of it on `shelf` that the other user can execute. `parts` (all below `root`) go with it."""
    if identity is None or identity.can("-x", binary):
        return binary
    copied = shelf / binary.relative_to(root)
    if not copied.exists():
        unfinished = shelf.with_name(f"{shelf.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        for part in parts:
            target = unfinished / part.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(part, target)
        shutil.rmtree(shelf, ignore_errors=True)
        unfinished.replace(shelf)
    if not identity.can("-x", copied):
        raise LocalError(f"User id {identity.uid} can execute neither {binary} nor a copy in {shelf}.")
    return copied


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _leave_a_sign(link: Path, home: Path) -> None:
    if link.is_symlink() or link.exists():
        link.unlink()
    link.symlink_to(home)
