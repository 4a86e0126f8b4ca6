"""How many tokens the media of a prompt stand for: an estimate, by settings that describe the model.

The defaults are those of models that split images into tiles of 32 x 32 pixels and look at two frames of a
video per second. What a request does not say of a medium (dimensions, length) has a default of its own.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Final, Literal

import msgspec

from dataplane.errors import ConfigError
from dataplane.headers import VIDEO_DURATION_S, VIDEO_FPS, VIDEO_RESOLUTION, Headers
from dataplane.plugin.base import PluginParams
from epp.interfaces.request import MediaKind, Medium

MAX_MEDIA_TOKENS: Final = 1 << 20
"""Tokens the media of one prompt stand for together; more than a model's context holds."""

MIN_TOKENS: Final = 4
"""Tokens a medium stands for at least: those of its digest."""

_RESOLUTION: Final = re.compile(r"\s*([1-9]\d{0,4})\s*[xX]\s*([1-9]\d{0,4})\s*")
_MAX_SECONDS: Final = 86_400.0
_MAX_FPS: Final = 1000.0

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=_MAX_SECONDS)]
Mode = Literal["dynamic", "static"]


def _need_static(mode: Mode, static: PluginParams | None, field: str) -> None:
    if mode == "static" and static is None:
        raise ConfigError(f"mode static needs it: {{{field}: <tokens>}}", path="static")


class Resolution(PluginParams, frozen=True):
    """Pixels."""

    width: Positive = 640
    """Pixels from left to right."""
    height: Positive = 360
    """Pixels from top to bottom."""


class ByArea(PluginParams, frozen=True):
    """Tokens by area."""

    factor: Rate = 1024
    """Pixels to a token."""


class StaticToken(PluginParams, frozen=True):
    """The same number for each."""

    static_token: Positive
    """Tokens."""


class ImageEstimate(PluginParams, frozen=True):
    """Tokens of an image."""

    mode: Mode = "dynamic"
    """By area, or the same number for each."""
    default_resolution: Resolution = Resolution()
    """Of an image whose dimensions are not known."""
    dynamic: ByArea = ByArea()
    """For mode dynamic."""
    static: StaticToken | None = None
    """For mode static."""

    def __post_init__(self) -> None:
        _need_static(self.mode, self.static, "staticToken")

    def tokens(self, width: int, height: int) -> float:
        """Of an image with these dimensions; 0 = not known."""
        if self.static is not None and self.mode == "static":
            return self.static.static_token
        if not width or not height:
            width, height = self.default_resolution.width, self.default_resolution.height
        return width * height / self.dynamic.factor


class FrameStatic(PluginParams, frozen=True):
    """The same number for each frame."""

    num_tokens_per_frame: Positive
    """Tokens."""


class FrameEstimate(PluginParams, frozen=True):
    """Tokens of one frame."""

    mode: Mode = "dynamic"
    """By area, or the same number for each."""
    dynamic: ByArea = ByArea()
    """For mode dynamic."""
    static: FrameStatic | None = None
    """For mode static."""

    def __post_init__(self) -> None:
        _need_static(self.mode, self.static, "numTokensPerFrame")


class Sampled(PluginParams, frozen=True):
    """So many frames per second."""

    sample_fps: Rate = msgspec.field(default=2.0, name="sampleFPS")
    """Frames per second that the model looks at."""
    temporal_patch_size: Count = 0
    """Frames that share their tokens; below 2 = none do."""


class Strided(PluginParams, frozen=True):
    """Every so many of the video's frames."""

    default_source_fps: Rate = msgspec.field(default=24.0, name="defaultSourceFPS")
    """Frames per second of a video that does not say."""
    frame_stride: Positive = 1
    """Of so many frames the model looks at one."""


class FrameCount(PluginParams, frozen=True):
    """How many frames the model looks at."""

    mode: Literal["sampled", "strided"] = "sampled"
    """By the video's length, or by its frames."""
    min_frames: Count = 0
    """At least so many."""
    max_frames: Count = 0
    """At most so many; 0 = any number."""
    sampled: Sampled = Sampled()
    """For mode sampled."""
    strided: Strided = Strided()
    """For mode strided."""

    def frames(self, seconds: float, source_fps: float) -> float:
        """Frames that have tokens of their own; 0 source_fps = not known."""
        if self.mode == "sampled":
            count, merged = seconds * self.sampled.sample_fps, max(1, self.sampled.temporal_patch_size)
        else:
            fps = source_fps or self.strided.default_source_fps
            count, merged = seconds * fps / self.strided.frame_stride, 1
        count = max(count, self.min_frames)
        return (min(count, self.max_frames) if self.max_frames else count) / merged


class VideoEstimate(PluginParams, frozen=True):
    """Tokens of a video."""

    tokens_per_frame: FrameEstimate = FrameEstimate()
    """Tokens of one frame: `mode`, `dynamic`, `static`."""
    frames: FrameCount = FrameCount()
    """How many frames count: `mode`, `minFrames`, `maxFrames`, `sampled`, `strided`."""
    default_resolution: Resolution = Resolution()
    """Of a video that does not say."""
    default_duration: Seconds = 10.0
    """Seconds of a video that does not say."""
    max_video_tokens: Count = 0
    """At most so many for one video; 0 = any number."""

    def tokens(self, headers: Headers) -> float:
        """Of a video of a request with these headers, which speak of all its videos."""
        seconds = _number(headers, VIDEO_DURATION_S, _MAX_SECONDS) or self.default_duration
        frame = self.tokens_per_frame
        if frame.static is not None and frame.mode == "static":
            each: float = frame.static.num_tokens_per_frame
        else:
            given = _RESOLUTION.fullmatch(headers.get(VIDEO_RESOLUTION))
            default = self.default_resolution
            width, height = (int(given[1]), int(given[2])) if given else (default.width, default.height)
            each = width * height / frame.dynamic.factor
        tokens = each * self.frames.frames(seconds, _number(headers, VIDEO_FPS, _MAX_FPS))
        return min(tokens, self.max_video_tokens) if self.max_video_tokens else tokens


class ByLength(PluginParams, frozen=True):
    """Tokens by length."""

    tokens_per_second: Rate = 25.0
    """Tokens of a second."""
    fixed_overhead_tokens: Count = 0
    """Tokens of every clip besides."""
    bytes_per_second: Rate = 16_000.0
    """Bytes of a second in a file that is no WAV."""


class AudioEstimate(PluginParams, frozen=True):
    """Tokens of an audio clip."""

    mode: Mode = "dynamic"
    """By length, or the same number for each."""
    dynamic: ByLength = ByLength()
    """For mode dynamic."""
    static: StaticToken | None = None
    """For mode static."""
    default_duration: Seconds = 10.0
    """Seconds of a clip whose length is not known."""
    max_audio_tokens: Count = 0
    """At most so many for one clip; 0 = any number."""

    def __post_init__(self) -> None:
        _need_static(self.mode, self.static, "staticToken")

    def tokens(self, size: int, seconds: float) -> float:
        """Of a clip of ``size`` bytes that lasts so long; 0 = not known."""
        if self.static is not None and self.mode == "static":
            return self.static.static_token
        rate = self.dynamic
        length = seconds or size / rate.bytes_per_second or self.default_duration
        tokens = length * rate.tokens_per_second + rate.fixed_overhead_tokens
        return min(tokens, self.max_audio_tokens) if self.max_audio_tokens else tokens


class EstimateParams(PluginParams, frozen=True):
    """How the estimate backend counts what is no text."""

    image: ImageEstimate = ImageEstimate()
    """Images, and files: `mode`, `defaultResolution`, `dynamic`, `static`."""
    video: VideoEstimate = VideoEstimate()
    """Videos: `tokensPerFrame`, `frames`, `defaultResolution`, `defaultDuration`, `maxVideoTokens`."""
    audio: AudioEstimate = AudioEstimate()
    """Audio clips: `mode`, `dynamic`, `static`, `defaultDuration`, `maxAudioTokens`."""

    def tokens(self, medium: Medium, headers: Headers) -> int:
        """Tokens a medium stands for, between ``MIN_TOKENS`` and ``MAX_MEDIA_TOKENS``."""
        tokens: float
        if medium.tokens:
            tokens = medium.tokens
        elif medium.kind is MediaKind.VIDEO:
            tokens = self.video.tokens(headers)
        elif medium.kind is MediaKind.AUDIO:
            tokens = self.audio.tokens(medium.size, medium.seconds)
        else:
            tokens = self.image.tokens(medium.width, medium.height)
        return int(min(max(tokens, MIN_TOKENS), MAX_MEDIA_TOKENS))


def _number(headers: Headers, name: str, largest: float) -> float:
    """A positive number in a header, at most ``largest``; 0.0 for anything else."""
    text = headers.get(name)
    try:
        value = float(text) if text else 0.0
    except ValueError:
        return 0.0
    return min(value, largest) if value > 0 and math.isfinite(value) else 0.0
