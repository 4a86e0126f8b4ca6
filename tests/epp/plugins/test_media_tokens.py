"""How many tokens media stand for, by settings and by what requests say."""

from typing import Any

import pytest

from dataplane.config.decode import decode_struct
from dataplane.errors import ConfigError
from dataplane.headers import Headers
from epp.interfaces.request import MediaKind, Medium
from epp.plugins.media_tokens import MAX_MEDIA_TOKENS, MIN_TOKENS, EstimateParams

NONE = Headers([])
DURATION, FPS, RESOLUTION = (f"x-llm-d-video-{name}" for name in ("duration-seconds", "fps", "resolution"))


def read(raw: Any) -> tuple[EstimateParams | None, list[str]]:
    problems: list[ConfigError] = []
    return decode_struct(raw, EstimateParams, "estimate", problems), [str(p) for p in problems]


def tokens(kind: str, raw: Any = None, headers: Headers = NONE, **known: Any) -> int:
    """Tokens of a medium with these settings."""
    settings, problems = read(raw)
    assert problems == []
    assert settings is not None
    return settings.tokens(Medium(MediaKind(kind), "0" * 16, **known), headers)


def test_an_image_counts_by_its_area():
    assert tokens("image", width=1024, height=512) == 512
    assert tokens("image") == tokens("file") == 225
    assert tokens("image", {"image": {"dynamic": {"factor": 784}}}, width=784, height=100) == 100
    assert tokens("image", {"image": {"defaultResolution": {"width": 1024, "height": 32}}}) == 32
    assert (
        tokens("image", {"image": {"mode": "static", "static": {"staticToken": 256}}}, width=9, height=9)
        == 256
    )


def test_tokens_that_are_known_need_no_estimate():
    assert tokens("image", width=1024, height=1024) == 1024
    assert tokens("image", width=1024, height=1024, tokens=70) == 70


def test_an_estimate_has_bounds():
    assert tokens("image", width=1, height=1) == MIN_TOKENS
    assert tokens("image", width=131_071, height=131_071) == MAX_MEDIA_TOKENS


def test_a_video_counts_by_frames():
    assert tokens("video") == 20 * 225
    qwen = {
        "video": {
            "frames": {"minFrames": 4, "maxFrames": 768, "sampled": {"sampleFPS": 2, "temporalPatchSize": 2}},
            "maxVideoTokens": 12_288,
        }
    }
    assert tokens("video", qwen) == 10 * 225
    assert tokens("video", qwen, Headers.of([(DURATION, "3600")])) == 12_288
    assert tokens("video", qwen, Headers.of([(DURATION, "0.5")])) == 2 * 225
    gemma = {
        "video": {
            "tokensPerFrame": {"mode": "static", "static": {"numTokensPerFrame": 70}},
            "frames": {"mode": "strided", "strided": {"frameStride": 24}},
        }
    }
    assert tokens("video", gemma) == 700
    assert tokens("video", gemma, Headers.of([(FPS, "48")])) == 1400


def test_headers_describe_the_videos_of_a_request():
    headers = Headers.of([(DURATION, "1.5"), (RESOLUTION, " 1024X32 ")])
    assert tokens("video", None, headers) == 3 * 32
    assert tokens("image", None, headers) == 225


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (DURATION, "long"),
        (DURATION, "-1"),
        (DURATION, "nan"),
        (DURATION, "inf"),
        (RESOLUTION, "640"),
        (RESOLUTION, "0x360"),
        (RESOLUTION, "999999x1"),
    ],
)
def test_headers_that_cannot_be_read_are_ignored(name: str, value: str):
    assert tokens("video", None, Headers.of([(name, value)])) == 4500


def test_an_audio_clip_counts_by_its_length():
    assert tokens("audio") == 250
    assert tokens("audio", seconds=4.0, size=1) == 100
    assert tokens("audio", size=64_000) == 100
    overhead = {
        "audio": {"dynamic": {"tokensPerSecond": 10, "fixedOverheadTokens": 2, "bytesPerSecond": 1000}}
    }
    assert tokens("audio", overhead, size=3000) == 32
    assert tokens("audio", {"audio": {"maxAudioTokens": 40}}) == 40
    assert tokens("audio", {"audio": {"mode": "static", "static": {"staticToken": 7}}}, seconds=99.0) == 7
    assert tokens("audio", {"audio": {"defaultDuration": 2}}) == 50


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (
            {"image": {"mode": "static"}},
            "estimate.image.static: mode static needs it: {staticToken: <tokens>}",
        ),
        (
            {"video": {"tokensPerFrame": {"mode": "static"}}},
            "estimate.video.tokensPerFrame.static: mode static needs it: {numTokensPerFrame: <tokens>}",
        ),
        (
            {"audio": {"mode": "static"}},
            "estimate.audio.static: mode static needs it: {staticToken: <tokens>}",
        ),
        ({"image": {"mode": "area"}}, "estimate.image.mode: must be one of dynamic, static; got 'area'"),
        ({"image": {"dynamic": {"factor": 0}}}, "estimate.image.dynamic.factor: expected float > 0.0"),
        ({"image": {"static": {}}}, "estimate.image.static.staticToken: is required"),
        (
            {"video": {"frames": {"sampled": {"sampleFps": 2}}}},
            'estimate.video.frames.sampled.sampleFps: unknown field (did you mean "sampleFPS"?)',
        ),
    ],
)
def test_impossible_settings_are_refused_at_their_place(raw: Any, problem: str):
    assert problem in read(raw)[1]
