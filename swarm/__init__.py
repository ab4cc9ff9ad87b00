"""What both sides agree on: the wire schema, a snapshot of a swarm, its coverage, where a server should serve, which
route a request takes. Pure, except `swarm.dht`."""
