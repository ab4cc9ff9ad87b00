"""Passes without a session: hidden states through blocks, and gradients back through them, with no cache left anywhere."""
