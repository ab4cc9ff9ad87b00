"""What the monitor remembers: minutes, days, uptime, incidents. A minute in which it did not see a thing counts for nothing."""
