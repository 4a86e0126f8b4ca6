"""The ``local`` driver: a real picker, and if wanted simulated model servers, for each pool on one machine.

wanted         what the database says should run
database       the database, asked on a thread of its own
following      which configuration each pool should run, and what became of it
delivery       how a picker gets its endpoints and objects: files
configuration  the picker's configuration file: tried, and taken back when it is refused
commands       command lines
pool           one pool's processes
usage          what a process has used
counts         requests and errors for the guard of a rollout
probe          how a picker fares
runner         all pools, from the first look at the database to the last process
service        the runner as a process
"""
