"""The ``local`` driver: a real picker, and if wanted simulated model servers, for each pool on one machine.

wanted         what the database says should run
tokens         with which each picker asks what it is to do
database       the database, asked on a thread of its own
access         how a picker reaches the control plane, which sends it its configuration and objects
commands       command lines
pool           one pool's processes
usage          what a process has used
counts         requests and errors for the guard of a rollout
probe          how a picker fares
leftovers      usage that pickers of deleted pools have left behind
runner         all pools, from the first look at the database to the last process
service        the runner as a process
"""
