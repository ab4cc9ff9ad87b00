"""A few tokens through the swarm now and then, compared with a trusted answer, and told to the site that shows it."""
