"""The commands that are offered for copying are well-formed."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cli.local.tries import tries
from tests.cli.local.plans import two_pools


def test_every_command_is_accepted_by_a_shell(tmp_path: Path):
    commands = [command for _, command in tries(two_pools(tmp_path))]
    checked = [subprocess.run(["/bin/sh", "-n", "-c", command], check=False) for command in commands]
    assert [command for command, done in zip(commands, checked, strict=True) if done.returncode] == []
    assert len(commands) == 8


def test_bodies_are_json_for_the_models_of_the_plan(tmp_path: Path):
    commands = dict(tries(two_pools(tmp_path)))
    bodies = [json.loads(shlex.split(commands[name])[-1]) for name in ("ask one", "stream from another")]
    assert [body["model"] for body in bodies] == ["llama-8b", "qwen/qwen-32b"]
    assert bodies[1]["stream"] is True


def test_an_alias_and_an_objective_can_be_tried(tmp_path: Path):
    offered = tries(two_pools(tmp_path))
    (alias,) = (command for what, command in offered if what.startswith("ask for chat"))
    assert json.loads(shlex.split(alias)[-1])["model"] == "chat"
    (ranked,) = (command for what, command in offered if what.startswith("ask with a priority"))
    words = shlex.split(ranked)
    assert "x-llm-d-inference-objective: interactive" in words
    assert json.loads(words[-1])["model"] == "llama-8b"


def test_what_the_plan_does_not_have_is_not_offered(tmp_path: Path):
    plan = two_pools(tmp_path)
    bare = replace(plan, pools=plan.pools[1:])
    assert len(tries(bare)) == 6


def test_repeated_prompt_expands_to_json(tmp_path: Path):
    (loop,) = (command for what, command in tries(two_pools(tmp_path)) if "twice" in what)
    shown = loop.replace("curl", "printf '%s\\n' curl")
    output = subprocess.run(["/bin/sh", "-c", shown], check=True, capture_output=True, text=True).stdout
    first, second = (line for line in output.splitlines() if line.startswith("{"))
    assert first == second
    assert len(json.loads(first)["prompt"].split()) == 3000


def test_path_of_the_program_is_one_word_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/opt/my tools; x/bin/python")
    *_, (_, command) = tries(two_pools(tmp_path))
    assert shlex.split(command)[:3] == ["/opt/my tools; x/bin/pointsman", "bench", "extproc"]


def test_question_why_asks_for_one_decision_of_the_first_pool(tmp_path: Path):
    plan = two_pools(tmp_path)
    (command,) = (
        command for what, command in tries(plan) if what.startswith("why the last endpoint of small")
    )
    url = f"http://127.0.0.1:{plan.pools[0].metrics_port}/debug/decisions?limit=1"
    assert shlex.split(command) == ["curl", "-s", url]
