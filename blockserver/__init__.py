"""Serves blocks of a model: a volunteer's process, without Django. The client is beside it in `blockserver.client`."""
