"""The other yardstick: the picker's own transport without the picker.

It does exactly what the grpc.aio yardstick does (parse the body once, take the destinations in turn, pass
everything else), on `dataplane.extproc`. A picker's cost minus this one's is the cost of its decisions and
its bookkeeping; this one's cost relative to grpc.aio's is what the own transport is worth.

Run as `python -m benchmarks.baseline_transport --endpoints IP:PORT,...`; the first line on stdout is the
port; it ends when its stdin does.
"""

import argparse
import gc
import itertools
import sys
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.baseline_grpc_aio import ChatRequest
from benchmarks.worker import end_with_parent, run_on_uvloop
from dataplane.errors import BadRequestError
from dataplane.extproc.events import Proceed
from dataplane.extproc.exchange import Decision, Ending, Exchange, HttpRequest, HttpResponse, Resume
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.extproc.service import PROCESS_METHOD, ExternalProcessor
from dataplane.headers import DESTINATION_ENDPOINT, LB_NAMESPACE
from dataplane.serving import GC_THRESHOLDS

UNCHANGED = Proceed()


class Turns:
    """The destinations in turn."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.decoder = msgspec.json.Decoder(ChatRequest)
        self.answers = itertools.cycle(
            [
                Proceed(
                    set_headers=((DESTINATION_ENDPOINT, endpoint.encode()),),
                    metadata={LB_NAMESPACE: {DESTINATION_ENDPOINT: endpoint}},
                )
                for endpoint in endpoints
            ]
        )

    def open(self) -> "TurnsExchange":
        """The exchange of one stream."""
        return TurnsExchange(self)


class TurnsExchange:
    """One HTTP exchange."""

    __slots__ = ("turns",)
    needs_request_body = True
    observes_response_body = False

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def on_request(self, request: HttpRequest, _: Resume) -> Decision:
        """Parse the body, if there is one, and name the next destination."""
        if request.body:
            try:
                self.turns.decoder.decode(request.body)
            except msgspec.MsgspecError as error:
                raise BadRequestError(str(error)) from None
        return next(self.turns.answers)

    def on_response_headers(self, _: HttpResponse) -> Decision:
        """Change nothing."""
        return UNCHANGED

    def on_response_chunk(self, chunk: bytes, end: bool) -> None:
        """Nothing to watch."""

    def on_end(self, ending: Ending) -> None:
        """Nothing to release."""


async def serve(open_exchange: Callable[[], Exchange]) -> None:
    """Listen on a free port, say which, and serve until stdin ends."""
    processor = ExternalProcessor(open_exchange)
    server = ExtProcServer(ServerOptions(host="127.0.0.1", port=0), {PROCESS_METHOD: processor})
    await server.start()
    try:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        print(server.port, flush=True)
        await end_with_parent()
    finally:
        await server.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baseline_transport", description=__doc__)
    parser.add_argument("--endpoints", required=True, help="comma-separated IP:PORT")
    run_on_uvloop(serve(Turns(parser.parse_args(argv).endpoints.split(",")).open))
    return 0


if __name__ == "__main__":
    sys.exit(main())
