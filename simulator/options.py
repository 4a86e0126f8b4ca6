"""Options of a simulated fleet: one table; flags, the YAML file, `/admin/config` and the docs follow from it.

Names are those of the field's vLLM simulator where it has the same thing, so that its files work; the value
of an option is the flag's, else the file's, else the environment's where there is one, else the default.
Whatever is not in the table is refused with the path of the key and the nearest name.
"""

import difflib
import ipaddress
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import yaml
from msgspec import Meta

from simulator.duration import Duration
from simulator.engine import Limits
from simulator.latency import Jittered, Latency, SequenceLatency
from simulator.profile import Profile, ProfileError, decode_duration, load_profile, shipped

MAX_REPLICAS = 2000
MAX_CONFIG_BYTES = 1024 * 1024
HIGHEST_PORT = 65535
MAX_STD_DEV = 0.3
"""Largest standard deviation of a time, as a share of its mean."""

ENVIRONMENT = {"model": "SIM_MODEL", "namespace": "POD_NAMESPACE"}

Port = Annotated[int, Meta(ge=0, le=HIGHEST_PORT)]
Count = Annotated[int, Meta(ge=1)]
Failure = Literal[
    "rate_limit", "invalid_api_key", "context_length", "server_error", "invalid_request", "model_not_found"
]


class OptionsError(ValueError):
    """Options that do not fit; the text names the option and the way out."""


def about(text: str) -> Meta:
    """Say what an option is, for the help and the reference page."""
    return Meta(description=text)


class LoraModule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A LoRA adapter that is served as a model of its own."""

    name: Annotated[str, Meta(min_length=1)]
    path: str = ""
    base_model_name: str = ""


class RuntimeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Options that `/admin/config` can change while a replica runs: speed and failures."""

    profile: Annotated[str, about("latency profile: a shipped name or the path of a YAML file")] = "h100-8b"
    time_scale: Annotated[
        float, Meta(gt=0, le=1000), about("factor on every duration; 0.1 is ten times faster")
    ] = 1.0
    latency_calculator: Annotated[
        Literal["", "constant", "per-token"],
        about("time sequences one by one, not by the profile; unset: when one of the times below is given"),
    ] = ""
    time_to_first_token: Annotated[Duration, about("constant: arrival to first token")] = Duration(0)
    time_to_first_token_std_dev: Annotated[Duration, about("noise of it, at most 30 %")] = Duration(0)
    inter_token_latency: Annotated[Duration, about("both calculators: time between two tokens")] = Duration(0)
    inter_token_latency_std_dev: Annotated[Duration, about("noise of it, at most 30 %")] = Duration(0)
    prefill_overhead: Annotated[Duration, about("per-token: fixed part of the prefill time")] = Duration(0)
    prefill_time_per_token: Annotated[Duration, about("per-token: for each prompt token not cached")] = (
        Duration(0)
    )
    prefill_time_std_dev: Annotated[Duration, about("per-token: noise of the prefill time")] = Duration(0)
    time_factor_under_load: Annotated[
        float, Meta(ge=1), about("both calculators: factor on all times when every seat is taken")
    ] = 1.0
    failure_injection_rate: Annotated[
        float, Meta(ge=0, le=100), about("percentage of requests that fail")
    ] = 0.0
    failure_types: Annotated[
        list[Failure], about(f"which: {', '.join(get_args(Failure))}; none named: all")
    ] = []
    hang_metrics: Annotated[
        bool, about("take requests for /metrics and answer none, while everything else works")
    ] = False


class SimOptions(RuntimeOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """All options of a fleet of equal replicas."""

    model: Annotated[
        str, Meta(min_length=1), about("model that the replicas serve (required; env SIM_MODEL)")
    ]
    served_model_name: Annotated[
        list[str], about("names clients use instead of it; metrics carry the first")
    ] = []
    lora_modules: Annotated[
        list[LoraModule], about('adapters, each as JSON: {"name": "a", "path": "", "base_model_name": ""}')
    ] = []
    max_loras: Annotated[Count, about("adapters in one batch")] = 1
    replicas: Annotated[int, Meta(ge=1, le=MAX_REPLICAS), about("model servers to run")] = 1
    host: Annotated[str, about("address of all replicas")] = "127.0.0.1"
    port: Annotated[Port, about("first port, counting up per replica; 0: free ports")] = 8000
    address_base: Annotated[
        str, about("first loopback address, counting up per replica, all on one port; replaces --host")
    ] = ""
    admin_port: Annotated[
        Port | None, about("port that kills, hangs and revives any replica; 0: a free one; unset: none")
    ] = None
    endpoints_file: Annotated[str, about("write the endpoints here for file discovery, once all listen")] = ""
    namespace: Annotated[str, about("namespace of the endpoints (env POD_NAMESPACE)")] = "default"
    name_prefix: Annotated[
        str, about("endpoint names are PREFIX-0, PREFIX-1, ...; unset: from the model")
    ] = ""
    seed: Annotated[int, about("same seed, same answers, failures and noise")] = 0
    mode: Annotated[Literal["random", "echo"], about("answer with words, or with the prompt")] = "random"
    max_model_len: Annotated[Count | None, about("tokens of prompt and answer; unset: the profile's")] = None
    max_num_seqs: Annotated[Count | None, about("sequences in a batch; unset: the profile's")] = None
    max_num_batched_tokens: Annotated[Count | None, about("tokens in a step; unset: the profile's")] = None
    max_waiting_queue_length: Annotated[int, Meta(ge=0), about("waiting sequences before 429")] = 1000
    block_size: Annotated[Literal[8, 16, 32, 64, 128], about("tokens in a KV-cache block")] = 16
    kv_cache_size: Annotated[Count | None, about("KV-cache blocks; unset: the profile's")] = None
    enable_prefix_caching: Annotated[bool, about("keep finished blocks findable")] = True
    max_request_body_size_mb: Annotated[int, Meta(ge=1, le=512), about("larger bodies get 413")] = 64
    default_embedding_dimensions: Annotated[int, Meta(ge=1, le=8192), about("length of an embedding")] = 384
    enable_request_id_headers: Annotated[bool, about("repeat X-Request-Id in the response")] = False


def unknown_key(key: object, known: Iterable[str]) -> str:
    """Say that `key` is unknown and which of `known` was probably meant."""
    near = difflib.get_close_matches(str(key), list(known), n=1, cutoff=0.6)
    return f"unknown key {key}" + (f" (did you mean {near[0]}?)" if near else "")


def load_options(config: str = "", flags: Mapping[str, object] | None = None) -> SimOptions:
    """Return the options from a YAML file and from flags (kebab-case names, values as text).

    Raises OptionsError.
    """
    merged: dict[str, object] = {
        name: os.environ[variable] for name, variable in ENVIRONMENT.items() if os.environ.get(variable)
    }
    if config:
        merged |= _adapters_decoded(_read_document(config))
        _convert({"model": "not needed yet"} | merged, f"{config}: ")
    merged |= _typed(_adapters_decoded(flags or {}))
    if not merged.get("model"):
        raise OptionsError("model: required; give --model, a model in the --config file, or SIM_MODEL")
    options = _convert(merged, "")
    check(options)
    return options


def check(options: RuntimeOptions) -> None:
    """Raise OptionsError when options contradict each other or name a profile that is not there."""
    for mean, deviation in (
        ("time_to_first_token", "time_to_first_token_std_dev"),
        ("inter_token_latency", "inter_token_latency_std_dev"),
    ):
        most = getattr(options, mean).seconds * MAX_STD_DEV
        if getattr(options, deviation).seconds > most:
            raise OptionsError(f"{_kebab(deviation)}: more than 30 % of {_kebab(mean)}")
    profile = profile_of(options)
    if isinstance(options, SimOptions):
        limits_of(options, profile)
        _check_places(options)
        names = [*served_names(options), *(module.name for module in options.lora_modules)]
        if len(set(names)) != len(names):
            raise OptionsError("served-model-name, lora-modules: a name occurs twice")


def _check_places(options: SimOptions) -> None:
    """Raise OptionsError when an address is none, or the last replica would be beyond the last port."""
    name, text = ("address-base", options.address_base) if options.address_base else ("host", options.host)
    try:
        first = ipaddress.ip_address(text)
        last = first + options.replicas - 1 if options.address_base else first
    except ValueError as error:
        raise OptionsError(f"{name}: {error}; give an IP address such as 127.0.0.1") from error
    if first.is_unspecified and options.endpoints_file:
        raise OptionsError(f"{name}: {text} is no address to connect to, so endpoints-file cannot name it")
    if options.address_base and not (first.is_loopback and last.is_loopback):
        raise OptionsError(f"address-base: {first} to {last} are not all loopback addresses")
    if not options.address_base and options.port + options.replicas - 1 > HIGHEST_PORT:
        raise OptionsError(f"port: {options.replicas} ports from {options.port} on do not exist")


def served_names(options: SimOptions) -> list[str]:
    """Return the names of the base model, the one that answers carry first."""
    return options.served_model_name or [options.model]


def profile_of(options: RuntimeOptions) -> Profile:
    """Load the profile; OptionsError when that fails."""
    try:
        return load_profile(options.profile)
    except ProfileError as error:
        raise OptionsError(str(error)) from error


def limits_of(options: SimOptions, profile: Profile) -> Limits:
    """Return the capacity of a replica: what is given, else the profile's, cut to what the cache can hold."""
    num_blocks = options.kv_cache_size or profile.kv_cache_size
    room = num_blocks * options.block_size
    if options.max_model_len is not None and options.max_model_len > room:
        raise OptionsError(
            f"max-model-len: {options.max_model_len} tokens do not fit into a kv-cache-size of {num_blocks} "
            f"blocks of {options.block_size}; at most {room}"
        )
    return Limits(
        max_model_len=options.max_model_len or min(profile.max_model_len, room),
        max_num_seqs=options.max_num_seqs or profile.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens or profile.max_num_batched_tokens,
        block_size=options.block_size,
        num_blocks=num_blocks,
        max_waiting=options.max_waiting_queue_length,
        max_loras=options.max_loras,
        prefix_caching=options.enable_prefix_caching,
    )


def latency_of(options: RuntimeOptions, max_num_seqs: int, noise: random.Random) -> Latency:
    """Return the latency model: the profile's, or a calculator when it or one of its times is given."""
    first, prefill = options.time_to_first_token, options.prefill_overhead.seconds
    constant = bool(first.seconds)
    per_token = bool(prefill or options.prefill_time_per_token.seconds)
    calculator = options.latency_calculator
    if not calculator and not constant and not per_token and not options.inter_token_latency.seconds:
        return profile_of(options).latency(options.time_scale)
    if calculator != "per-token" and (constant or calculator == "constant"):
        ttft = Jittered(first.seconds, options.time_to_first_token_std_dev.seconds)
    else:
        ttft = None
    return SequenceLatency(
        noise,
        max_num_seqs=max_num_seqs,
        load_factor=options.time_factor_under_load,
        time_to_first_token=ttft,
        prefill_overhead=prefill,
        prefill_per_token=options.prefill_time_per_token.seconds,
        prefill_std_dev=options.prefill_time_std_dev.seconds,
        inter_token=Jittered(
            options.inter_token_latency.seconds, options.inter_token_latency_std_dev.seconds
        ),
        time_scale=options.time_scale,
    )


def merge_runtime(current: RuntimeOptions, changes: Mapping[str, object]) -> RuntimeOptions:
    """Return `current` with `changes` (kebab-case names); OptionsError if one of them is wrong."""
    known = RuntimeOptions.__struct_encode_fields__
    for key in changes:
        if key not in known:
            raise OptionsError(unknown_key(key, known))
    if "profile" in changes and changes["profile"] not in shipped():
        raise OptionsError(f"profile: only a shipped one can be switched to: {', '.join(shipped())}")
    merged = describe(current) | dict(changes)
    try:
        options = msgspec.convert(merged, RuntimeOptions, dec_hook=decode_duration)
    except msgspec.ValidationError as error:
        raise OptionsError(_readable(error)) from error
    check(options)
    return options


def runtime_of(options: SimOptions) -> RuntimeOptions:
    """Return the part of the options that can change at run time."""
    return RuntimeOptions(**{name: getattr(options, name) for name in RuntimeOptions.__struct_fields__})


def describe(options: RuntimeOptions) -> dict[str, Any]:
    """Return options as a document: kebab-case keys, durations as text."""
    described: dict[str, Any] = msgspec.to_builtins(options, enc_hook=str)
    return described


def _read_document(config: str) -> dict[str, object]:
    known = SimOptions.__struct_encode_fields__
    try:
        with Path(config).open(encoding="utf-8") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
        if len(text) > MAX_CONFIG_BYTES:
            raise OptionsError(f"{config}: larger than {MAX_CONFIG_BYTES} bytes")
        document = yaml.safe_load(text) or {}
    except OSError as error:
        raise OptionsError(f"{config}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise OptionsError(f"{config}: {error}") from error
    if not isinstance(document, dict):
        raise OptionsError(f"{config}: must be a mapping of option names to values")
    for key in document:
        if key not in known:
            raise OptionsError(f"{config}: {unknown_key(key, known)}")
    return document


def _typed(flags: Mapping[str, object]) -> dict[str, object]:
    """Convert flags from text; each error names its flag."""
    typed: dict[str, object] = {}
    for field in msgspec.structs.fields(SimOptions):
        name = field.encode_name
        if name not in flags:
            continue
        try:
            typed[name] = msgspec.convert(flags[name], field.type, strict=False, dec_hook=decode_duration)
        except msgspec.ValidationError as error:
            raise OptionsError(f"--{name}: {str(error).partition(' - at ')[0]}") from error
    return typed


def _adapters_decoded(document: Mapping[str, object]) -> dict[str, object]:
    """Decode adapters given as JSON text, the form that flags and other simulators' files have."""
    plain = dict(document)
    modules = plain.get("lora-modules")
    if isinstance(modules, list):
        plain["lora-modules"] = [_adapter(index, module) for index, module in enumerate(modules)]
    return plain


def _adapter(index: int, module: object) -> object:
    if not isinstance(module, str):
        return module
    try:
        return msgspec.json.decode(module)
    except msgspec.DecodeError as error:
        raise OptionsError(f"lora-modules[{index}]: not JSON: {error}") from error


def _convert(document: Mapping[str, object], where: str) -> SimOptions:
    try:
        return msgspec.convert(document, SimOptions, dec_hook=decode_duration)
    except msgspec.ValidationError as error:
        raise OptionsError(where + _readable(error)) from error


def _readable(error: msgspec.ValidationError) -> str:
    """Put the path first: `port: Expected int` instead of `Expected int - at $.port`."""
    text, _, path = str(error).partition(" - at ")
    return f"{path.strip('`').removeprefix('$').removeprefix('.')}: {text}" if path else text


def _kebab(name: str) -> str:
    return name.replace("_", "-")
