"""The client behind OpenAI's HTTP interface, for many callers at once.

config.py      settings and limits
refusals.py    what is answered with an error, in OpenAI's shape
asked.py       a request's body -> a frozen value, or a refusal
text.py        tokens -> text without half characters; stop words
turns.py       who is next, fairly
answering.py   one generation, from its turn to its last piece
documents.py   what is sent: chunks and whole answers
voice.py       the model with its tokenizer
lens.py        what the model would say after each block
sight.py       blocks without a server, and since when
connection.py  the peer in the swarm, kept alive
metrics.py     counters for Prometheus
callers.py     who asks
app.py         the doors
running.py     the process
"""
