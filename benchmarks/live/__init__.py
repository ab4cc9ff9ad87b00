"""How late and how heavy the site's pages are: `python -m benchmarks.live loss|sockets|weight`."""
