"""Options: precedence, refusals with path and suggestion, capacity and latency that follow from them."""

import random
from pathlib import Path

import pytest

from simulator.latency import SequenceLatency, StepLatency
from simulator.options import (
    LoraModule,
    OptionsError,
    SimOptions,
    describe,
    latency_of,
    limits_of,
    load_options,
    merge_runtime,
    profile_of,
    runtime_of,
    served_names,
)
from simulator.profile import ProfileError, load_profile, shipped

NO_DURATION = "is not a duration; write a number and a unit, such as 250ms or 1.5s"
NO_ADDRESS = "does not appear to be an IPv4 or IPv6 address; give an IP address such as 127.0.0.1"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SIM_MODEL", raising=False)
    monkeypatch.delenv("POD_NAMESPACE", raising=False)


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "sim.yaml"
    path.write_text(text)
    return str(path)


def refusal(tmp_path: Path, text: str, flags: dict[str, object] | None = None) -> str:
    path = config(tmp_path, text)
    with pytest.raises(OptionsError) as caught:
        load_options(path, flags)
    return str(caught.value).replace(path, "FILE")


def test_flag_beats_file_beats_environment_beats_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SIM_MODEL", "from-environment")
    monkeypatch.setenv("POD_NAMESPACE", "from-environment")
    path = config(tmp_path, "model: from-file\nmax-num-seqs: 5\nseed: 7\n")
    options = load_options(path, {"max-num-seqs": "9"})
    assert (options.model, options.namespace) == ("from-file", "from-environment")
    assert (options.max_num_seqs, options.seed, options.max_loras) == (9, 7, 1)


def test_file_of_the_fields_simulator_is_taken(tmp_path: Path):
    text = """
model: Qwen/Qwen2.5-1.5B
served-model-name: [a, b]
max-model-len: 1024
max-num-seqs: 5
block-size: 32
kv-cache-size: 2048
mode: echo
time-to-first-token: 2s
time-to-first-token-std-dev: 300ms
inter-token-latency: 1s
time-factor-under-load: 3.0
failure-injection-rate: 10
failure-types: [rate_limit, server_error]
lora-modules:
  - '{"name":"one","path":"/adapters/one"}'
  - {name: two, base_model_name: a}
"""
    options = load_options(config(tmp_path, text))
    assert served_names(options) == ["a", "b"]
    assert options.lora_modules == [LoraModule("one", "/adapters/one"), LoraModule("two", "", "a")]
    assert (options.mode, options.block_size, options.failure_types) == (
        "echo",
        32,
        ["rate_limit", "server_error"],
    )
    assert isinstance(latency_of(options, 5, random.Random(0)), SequenceLatency)


def test_flags_are_text():
    options = load_options(
        flags={
            "model": "m",
            "replicas": "3",
            "time-scale": "0.5",
            "enable-prefix-caching": "false",
            "lora-modules": ['{"name":"one"}'],
            "failure-types": ["server_error"],
            "prefill-overhead": "10ms",
        }
    )
    assert (options.replicas, options.time_scale, options.enable_prefix_caching) == (3, 0.5, False)
    assert options.prefill_overhead.seconds == 0.01
    assert options.lora_modules == [LoraModule("one")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: m\nmax-num-seq: 1", "FILE: unknown key max-num-seq (did you mean max-num-seqs?)"),
        ("model: m\nzzz: 1", "FILE: unknown key zzz"),
        ("model: m\nport: 70000", "FILE: port: Expected `int` <= 65535"),
        ("model: m\nport: '80'", "FILE: port: Expected `int`, got `str`"),
        (
            "model: m\ninter-token-latency: 5",
            f"FILE: inter-token-latency: 5 {NO_DURATION}",
        ),
        (
            "model: m\nlora-modules: [{name: a, pth: b}]",
            "FILE: lora-modules[0]: Object contains unknown field `pth`",
        ),
        ("model: m\nmode: loud", "FILE: mode: Invalid enum value 'loud'"),
        ("- a", "FILE: must be a mapping of option names to values"),
        ("port: 1", "model: required; give --model, a model in the --config file, or SIM_MODEL"),
        (
            "model: m\ninter-token-latency: 10ms\ninter-token-latency-std-dev: 4ms",
            "inter-token-latency-std-dev: more than 30 % of inter-token-latency",
        ),
        (
            "model: m\nkv-cache-size: 10\nmax-model-len: 161",
            "max-model-len: 161 tokens do not fit into a kv-cache-size of 10 blocks of 16; at most 160",
        ),
        ("model: m\nserved-model-name: [a, a]", "served-model-name, lora-modules: a name occurs twice"),
        ("model: m\nport: 65530\nreplicas: 10", "port: 10 ports from 65530 on do not exist"),
        (
            "model: m\nhost: localhost",
            f"host: 'localhost' {NO_ADDRESS}",
        ),
        (
            "model: m\naddress-base: 10.0.0.1",
            "address-base: 10.0.0.1 to 10.0.0.1 are not all loopback addresses",
        ),
        (
            "model: m\nhost: 0.0.0.0\nendpoints-file: e.yaml",
            "host: 0.0.0.0 is no address to connect to, so endpoints-file cannot name it",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_refusal_names_the_key_and_the_way_out(tmp_path: Path, text: str, message: str):
    assert refusal(tmp_path, text) == message


def test_refused_flag_is_named():
    with pytest.raises(OptionsError, match="--replicas: Expected `int`, got `str`"):
        load_options(flags={"model": "m", "replicas": "many"})
    with pytest.raises(OptionsError, match=r"lora-modules\[0\]: not JSON"):
        load_options(flags={"model": "m", "lora-modules": ["{"]})


def test_broken_yaml_and_missing_file_are_named(tmp_path: Path):
    assert refusal(tmp_path, "a: [").startswith("FILE: while parsing")
    with pytest.raises(OptionsError, match="No such file"):
        load_options(str(tmp_path / "absent.yaml"))


def test_capacity_comes_from_the_profile_unless_given():
    options = SimOptions(model="m", profile="l40s-small", max_num_seqs=3)
    held = limits_of(options, profile_of(options))
    assert (held.max_model_len, held.max_num_seqs, held.max_num_batched_tokens) == (32768, 3, 8192)
    assert (held.num_blocks, held.block_size) == (18900, 16)


def test_context_is_cut_to_what_the_cache_holds():
    options = SimOptions(model="m", kv_cache_size=64)
    assert limits_of(options, profile_of(options)).max_model_len == 1024


def test_profile_makes_step_latency_and_scale_applies():
    options = SimOptions(model="m", profile="h100-8b", time_scale=0.5)
    latency = latency_of(options, 8, random.Random(0))
    assert isinstance(latency, StepLatency)
    assert latency.step(1000, 0, 0) == pytest.approx(0.0035 + 0.018)
    assert latency.step(0, 100, 100_000) == pytest.approx(0.0035 + 0.001 + 0.0028)


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"time-to-first-token": "1s", "prefill-overhead": "9s"}, 1.0),
        ({"prefill-overhead": "2s", "prefill-time-per-token": "100ms"}, 3.0),
        ({"latency-calculator": "per-token", "time-to-first-token": "1s", "prefill-overhead": "2s"}, 2.0),
        ({"latency-calculator": "constant", "prefill-overhead": "9s"}, 0.0),
        ({"inter-token-latency": "1s"}, 0.0),
    ],
    ids=["constant-wins", "per-token", "per-token-named", "constant-named", "only-itl"],
)
def test_calculator_follows_from_what_is_given(given: dict[str, object], first: float):
    latency = latency_of(load_options(flags={"model": "m"} | given), 8, random.Random(0))
    assert isinstance(latency, SequenceLatency)
    assert latency.prefill(10, 1) == pytest.approx(first)


def test_run_time_change_is_all_or_nothing():
    current = runtime_of(SimOptions(model="m", profile="instant"))
    changed = merge_runtime(current, {"failure-injection-rate": 50, "inter-token-latency": "5ms"})
    assert (changed.failure_injection_rate, changed.inter_token_latency.seconds) == (50.0, 0.005)
    for bad, message in (
        ({"failure-rate": 1}, "unknown key failure-rate"),
        ({"model": "x"}, "unknown key model"),
        ({"failure-injection-rate": 101}, "failure-injection-rate: Expected `float` <= 100.0"),
        ({"profile": "other.yaml"}, "profile: only a shipped one can be switched to"),
    ):
        with pytest.raises(OptionsError, match=message):
            merge_runtime(current, bad)


def test_described_options_can_be_read_again():
    current = runtime_of(SimOptions(model="m", time_scale=0.1))
    assert merge_runtime(current, describe(current)) == current


def test_every_shipped_profile_loads():
    assert shipped() == ["h100-70b-tp8", "h100-8b", "instant", "l40s-small"]
    for name in shipped():
        profile = load_profile(name)
        assert profile.kv_cache_size * 16 >= profile.max_model_len


def test_profile_of_ones_own_is_read_from_a_file(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "description: mine\nmax-model-len: 100\nmax-num-seqs: 2\n"
        "max-num-batched-tokens: 50\nkv-cache-size: 10\n"
        "step: {base: 1ms, prefill-token: 1us, decode-sequence: 0s, context-token: 0s}\n"
    )
    assert load_profile(str(path)).latency(2.0) == StepLatency(0.002, 2e-6, 0.0, 0.0)
    path.write_text(path.read_text().replace("base: 1ms", "base: 1"))
    with pytest.raises(ProfileError, match="1 is not a duration"):
        load_profile(str(path))


def test_unknown_profile_lists_the_shipped_ones():
    with pytest.raises(OptionsError, match="h100-70b-tp8, h100-8b, instant, l40s-small"):
        load_options(flags={"model": "m", "profile": "h200"})
