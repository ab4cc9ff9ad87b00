"""The client as a transformers model: synchronous, over an event loop on a thread of its own."""
