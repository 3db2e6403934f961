"""The nemesis: real daemons and ranks on several nodes, with faults that combine at random.

``make soak MINUTES=n SEED=s`` runs it, as root on Linux (see ``__main__``). What happens is a pure
function of the seed (``schedule``): ``nemesis`` carries it out, ``launch`` has ranks train in step,
``verdict`` judges what they were given, ``resources`` what daemons keep and what is left behind.
"""
