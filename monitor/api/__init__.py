"""The monitor's reads under /api: a file for each resource with its typed answer, its builder and its door.

routes.py       all of them together; mounted by the coordinator
middleware.py   what holds for every answer: problems, ETags, caching, CORS, limits; shortcut.py gives out what lies ready
sight.py        what this process knows of each swarm; problems.py caching.py paging.py typed.py shared by the doors
openapi.py      the document as programs read it; contract.py finds what a change of it would break
"""
