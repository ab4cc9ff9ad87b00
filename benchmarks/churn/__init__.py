"""Records how a real swarm comes and goes, as the monitor's own crawls see it; tests/data/churn/README.md says what for."""
