"""The page on which people talk with the swarm, through the gateway: this process asks it over HTTP and loads no model.

conversation.py   what was said, as it travels in the form: nothing of it is kept here
gateway.py        the gateway's answers, as events and sentences
shown.py          what the page shows of them
views.py          the doors
"""
