"""Why a request went where it went: which decisions are traced, and how traces are shown.

``epp.interfaces.trace`` collects a trace while a decision is made. Here is what surrounds that: ``policy``
says which requests are traced, ``describe`` turns records into JSON-able data for the debug pages,
``summary`` into one line for a response header, ``offline`` makes a decision without a running picker. All
but ``policy`` runs only when somebody looks.
"""
