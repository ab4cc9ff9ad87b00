"""THE WIRE SCHEMA: what peers, servers, clients and the site say to each other, parsed strictly and encoded exactly.

    spans.py     half-open spans of blocks
    keys.py      DHT keys: block uids, prefixes, peer ids
    codec.py     msgpack as hivemind speaks it, within limits
    text.py      text written by strangers, made safe to show
    records.py   what a server and a model announce in the DHT
    hints.py     what a server and the coordinator say to each other over HTTP

A peer can lie about everything: parsing ends in a valid frozen value or in BadRecord, in nothing else.
The protocol itself is described in docs/protocol.md.
"""
