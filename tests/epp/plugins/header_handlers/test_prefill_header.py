"""prefill-header-handler: an older name of disagg-headers-handler; deprecated as well."""

from epp.plugins.header_handlers.prefill_header import PrefillHeaderHandler
from tests.support.pool import make_plugin


def test_the_deprecation_names_what_replaces_it():
    assert make_plugin(PrefillHeaderHandler).warnings == [
        "prefill-header-handler is deprecated; disagg-profile-handler sets these headers itself, so remove it"
    ]
