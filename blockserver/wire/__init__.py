"""Petals' messages: metadata and tensors, parsed strictly and encoded exactly. Both ends of a connection use this."""
