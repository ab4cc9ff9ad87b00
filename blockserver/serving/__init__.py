"""The life of a server: advise, load, announce, serve, move where a hole needs it, leave in order."""
