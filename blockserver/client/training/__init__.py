"""Training what the client owns (prompts, head, adapters) by gradients that come back through the swarm's frozen blocks."""
