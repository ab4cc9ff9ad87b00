"""Serves blocks of a model: a volunteer's process, without Django. The client is beside it in `blockserver.client`.

`from blockserver import AutoDistributedModelForCausalLM` loads torch, transformers and hivemind; `import blockserver` does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockserver.client.auto.loading import AutoDistributedModelForCausalLM as AutoDistributedModelForCausalLM

__all__ = ["AutoDistributedModelForCausalLM"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from blockserver.client.auto import loading

        return getattr(loading, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
