"""Names of the headers that a simulated model server reads and writes."""

from typing import Final

POD: Final = "x-inference-pod"
PORT: Final = "x-inference-port"
NAMESPACE: Final = "x-inference-namespace"
REQUEST_ID: Final = "x-request-id"

RETURN_ERROR: Final = "x-return-error"
"""A status code: the request fails with it."""

ECHO_DIGEST: Final = "x-echo-digest"
"""`1`: the response tells what arrived, in the four headers below."""

BODY_SHA256: Final = "x-body-sha256"
BODY_BYTES: Final = "x-body-bytes"
RECEIVED_HEADERS: Final = "x-received-headers"
"""JSON array of [name, value] pairs as received, in order."""

RECEIVED_HEADERS_CUT: Final = "x-received-headers-cut"
"""How many pairs were shortened or left out because of the size limits; absent when none was."""
