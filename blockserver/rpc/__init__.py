"""The server's end of Petals' RPCs: requests in, the compute thread, answers out."""
