"""`python -m coordinator.launch` starts the site, and for the demo a whole swarm, on one machine without root or Docker.

It knows processes, ports and files. It does not know Django, hivemind or torch and imports none of them: what it starts
does. Layers, each importing only those below it:

    cli        the command line
    demo site gateway  what is started, in which order  kill     ends one demo server
    services   Postgres and Valkey: URLs out            narrate, choose, commands: pure
    supervisor starts, waits for and stops children     leash    ends a child together with its descendants
    run_folder kernel ports readiness terminal unprivileged
"""
