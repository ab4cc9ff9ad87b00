"""Watches a swarm: from the DHT to the page. It observes and does not advise."""
