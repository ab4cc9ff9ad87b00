"""Runs a model whose blocks are served elsewhere: embeddings and head here, hidden states through a chain of servers."""
