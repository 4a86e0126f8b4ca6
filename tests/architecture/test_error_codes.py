"""The reference of metrics lists exactly the error codes that can be counted."""

import re
from collections.abc import Iterator

from dataplane.errors import RequestError
from epp.handler import MODEL_SERVER_ERROR
from tests.architecture.tree import ROOT

PAGE = ROOT / "docs/reference/metrics.md"


def codes(kind: type[RequestError] = RequestError) -> Iterator[str]:
    """Codes of all errors a request can end with in a picker."""
    for each in kind.__subclasses__():
        if not each.__module__.startswith("ipp."):  # those of a payload processor, when a test has loaded one
            yield each.code
        yield from codes(each)


def test_reference_lists_exactly_the_error_codes():
    (row,) = (
        line for line in PAGE.read_text().splitlines() if line.startswith("| `llm_d_epp_request_error_total`")
    )
    documented = re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", row.partition("codes:")[2])
    assert sorted(documented) == sorted({*codes(), MODEL_SERVER_ERROR})
