"""The site (settings, urls, asgi, celery) and its advice: leases on under-served blocks, with reasons."""
