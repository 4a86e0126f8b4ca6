"""passthrough-parser: anything is accepted, nothing is known."""

from dataplane.headers import Headers
from epp.interfaces.request import ParsedBody
from epp.plugins.parsers.passthrough import PassthroughParser
from tests.support.pool import make_plugin


def test_any_body_is_accepted_and_nothing_is_learnt():
    parser = make_plugin(PassthroughParser)
    assert parser.parse(Headers([]), "/anything", b"passthrough-parser \xff") == ParsedBody()
    assert parser.response_reader(True) is None


def test_it_claims_no_path():
    assert list(PassthroughParser.claims) == []
