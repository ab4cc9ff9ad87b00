"""The one edge of `swarm`: everything that touches the network.

    node.py         one peer: p2pd, a DHT node, its health
    tolerant.py     a serializer that a bad record cannot hang
    given_up.py     a reader that a late answer cannot end
    reading.py      DHT keys -> Readings
    silence.py      who has not answered in this crawl
    roll_call.py    everybody is asked at once whether they are there
    declare.py      a server's announcement -> DHT keys
    probe.py        dial one server and ask it for its blocks
    addresses.py    multiaddresses from people, checked before libp2p sees them
    background.py   runs all that on a thread of its own, for callers without an event loop

Importing this package imports hivemind and torch (about 5 s); the web process must not.
"""

import logging

from hivemind.utils.logging import use_hivemind_log_handler

# hivemind renames level 30 for everyone and adds a stderr handler of its own: put both right, once, where it is imported.
use_hivemind_log_handler("nowhere")
logging.addLevelName(logging.WARNING, "WARNING")
