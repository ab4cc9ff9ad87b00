"""One script for each figure; each compares side by side in one run, and prints a table and JSON."""
