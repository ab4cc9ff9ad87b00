"""One thread that computes: steps of many sessions in one pass, their caches, and what this machine reaches."""
