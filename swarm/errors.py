"""Every error that crosses a package boundary says who is to blame and whether trying again helps.

SwarmError
├── LocalError          you, the caller or operator, asked for something that cannot work
└── RemoteError         a peer, or the network between us, did
    ├── BadRecord       a peer wrote something that is not Petals' wire format
    ├── Unreachable     nobody answered
    └── MissingBlocks   some blocks have no server
"""

from __future__ import annotations


class SwarmError(Exception):
    """`permanent` is True where trying the same thing again cannot help."""

    permanent = False


class LocalError(SwarmError):
    permanent = True


class RemoteError(SwarmError):
    permanent = False


class BadRecord(RemoteError):
    """`reason` is a short code for counting , `detail` is for people."""

    permanent = True

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Unreachable(RemoteError):
    pass


class MissingBlocks(RemoteError):
    """No route: `blocks` are the block indices that no usable server holds."""

    def __init__(self, message: str, blocks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.blocks = blocks
