"""The least that a payload processor can be: its transport, collecting every request and passing it on.

A processor's cost minus this one's is the cost of its plugins and its bookkeeping. It takes each request
whole before it answers, as a processor does that may have to look at it, so both have the same exchange.

Run as `python -m benchmarks.baseline_passing`; the first line on stdout is the port; it ends when its stdin
does.
"""

import sys

from benchmarks.baseline_transport import serve
from benchmarks.worker import run_on_uvloop
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Decision, Ending, HttpRequest, HttpResponse, Resume

UNCHANGED = Proceed()


class Passing:
    """One HTTP exchange, of which nothing changes."""

    __slots__ = ()
    needs_request_body = True
    observes_response_body = False

    def on_request(self, _: HttpRequest, __: Resume) -> Decision:
        """Go on."""
        return UNCHANGED

    def on_response_headers(self, _: HttpResponse) -> Decision:
        """Go on."""
        return UNCHANGED

    def on_response_chunk(self, chunk: bytes, end: bool) -> None:
        """Nothing to watch."""

    def on_end(self, ending: Ending) -> None:
        """Nothing to release."""


def main() -> int:
    """Serve."""
    run_on_uvloop(serve(Passing))
    return 0


if __name__ == "__main__":
    sys.exit(main())
