"""``model-name-to-header``: the client learns which model served it."""

from __future__ import annotations

from tests.support.processors import Rig, headers_of, one_profile
from tests.support.profiles import FIELD


def test_the_served_model_is_told_while_the_answer_streams() -> None:
    rig = Rig(one_profile([FIELD, {"type": "model-name-to-header"}], response=["model-name-to-header"]))
    rig.ask({"model": "m"})
    answer = rig.answer(("content-type", "text/event-stream"))
    assert headers_of(answer) == {"x-gateway-model-name": "m"}
    assert answer.transform is None
