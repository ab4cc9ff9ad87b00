"""`sepal doctor`: what keeps this machine from serving, and the next command to type.

    wishes.py      what the operator means to do
    facts.py       what was found on the machine, in the network, in the swarm: one frozen value
    findings.py    a finding, and the report made of them
    machine.py     facts -> findings about this machine
    network.py     facts -> findings about its network and the swarm
    gather.py      the machine -> facts
    meet.py        the swarm, the site and the hub -> facts
    code.py        findings -> ten letters for the site's wizard
    report.py      findings -> terminal or JSON, exit code

Checks are pure: a fault is a value in a test.
"""
