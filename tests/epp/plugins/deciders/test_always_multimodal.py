"""always-disagg-multimodal-decider: yes to prompts with something to encode."""

import pytest

from epp.interfaces.request import MediaKind, Medium
from epp.interfaces.scheduling import StageDecider
from epp.plugins.deciders.always_multimodal import AlwaysMultimodalDecider
from tests.support.pool import make_plugin, make_request, make_table

DIGEST = "0" * 16


def wants(*kinds: str) -> bool:
    decider = make_plugin(AlwaysMultimodalDecider)
    assert isinstance(decider, StageDecider)
    media = [Medium(MediaKind(kind), DIGEST) for kind in kinds] or None
    request = make_request(prompt_text=b"x", media=media)
    assert decider.wants_stage(request, None) is decider.wants_stage(request, make_table(1).all().endpoint(0))
    return decider.wants_stage(request, None)


@pytest.mark.parametrize("kinds", [["image"], ["audio"], ["video"], ["file", "image"]], ids=str)
def test_images_clips_and_videos_are_worth_a_stage(kinds: list[str]):
    assert wants(*kinds) is True


def test_text_and_files_are_not():
    assert wants() is False
    assert wants("file") is False
