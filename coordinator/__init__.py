"""The site (settings, urls, asgi, celery) and its advice: leases on under-served blocks, with reasons."""

from coordinator.celery import app as celery_app

__all__ = ["celery_app"]
