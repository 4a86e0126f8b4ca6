"""Latency profiles: what one kind of model server can hold and how long its steps take, read from YAML."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
import yaml

from simulator.duration import Duration
from simulator.latency import StepLatency

MAX_PROFILE_BYTES = 64 * 1024


class ProfileError(ValueError):
    """A profile that does not exist or does not hold what it must; the text names the place."""


Positive = Annotated[int, msgspec.Meta(ge=1)]


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Coefficients of the step time: base + prefill-token*P + decode-sequence*D + context-token*C."""

    base: Duration
    prefill_token: Duration
    decode_sequence: Duration
    context_token: Duration


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Capacity and speed of one replica."""

    description: str
    max_model_len: Positive
    max_num_seqs: Positive
    max_num_batched_tokens: Positive
    kv_cache_size: Positive
    step: Step

    def latency(self, time_scale: float) -> StepLatency:
        """Return the step times, every one multiplied by `time_scale`."""
        step = self.step
        return StepLatency(
            base=step.base.seconds * time_scale,
            prefill_token=step.prefill_token.seconds * time_scale,
            decode_sequence=step.decode_sequence.seconds * time_scale,
            context_token=step.context_token.seconds * time_scale,
        )


def shipped() -> list[str]:
    """Return the names of the profiles that come with the simulator."""
    files = resources.files("simulator.profiles").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_profile(name: str) -> Profile:
    """Read a shipped profile by its name, or any other by the path of its file."""
    if name in shipped():
        text = (resources.files("simulator.profiles") / f"{name}.yaml").read_text()
    else:
        text = _read(Path(name))
    try:
        return msgspec.convert(yaml.safe_load(text), Profile, dec_hook=decode_duration)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise ProfileError(f"profile {name}: {error}") from error


def _read(path: Path) -> str:
    names = ", ".join(shipped())
    if path.suffix not in {".yaml", ".yml"}:
        raise ProfileError(
            f"profile {path}: no such profile; name one of {names}, or the path of a .yaml file"
        )
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_PROFILE_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"profile {path}: {error}; the shipped ones are {names}") from error
    if len(text) > MAX_PROFILE_BYTES:
        raise ProfileError(f"profile {path}: larger than {MAX_PROFILE_BYTES} bytes")
    return text


def decode_duration(kind: type, value: object) -> object:
    """Decoding hook for documents that hold durations."""
    if kind is Duration:
        return value if isinstance(value, Duration) else Duration.parse(value)
    raise TypeError(f"no decoder for {kind}")
