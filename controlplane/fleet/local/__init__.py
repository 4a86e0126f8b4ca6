"""The ``local`` driver: a real picker, and if wanted simulated model servers, for each pool on one machine.

database   what should run, read on a thread of its own
delivery   how a picker gets what it is to know: files
pool       one pool's processes
usage      what a process has used
probe      how a picker fares
runner     all pools, from the first look at the database to the last process
"""
