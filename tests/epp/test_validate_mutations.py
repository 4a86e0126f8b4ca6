"""`pointsman epp validate` on damaged files: whatever is in them, an answer and never a traceback."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epp.validate import validate

FOLDER = Path(__file__).parents[1] / "vectors" / "configs"
SAMPLES = [file.read_bytes() for file in sorted(FOLDER.glob("*.yaml")) if ".expected." not in file.name]
OTHERS = """\
endpoints:
- {name: a, address: 10.0.0.1, port: '8000', labels: {zone: z}}
- {name: b, address: ::1}
=====
apiVersion: pointsman.dev/v1
kind: EndpointList
resolve: {interval: 10s}
endpoints:
- {name: a, address: host.example, ranks: 2, role: decode, metrics: {port: 9400}, models: [m]}
=====
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: a}
spec: {priority: 1, poolRef: {name: p}}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: b}
spec:
  poolRef: {name: p}
  rules: [{matches: [{model: {type: Exact, value: x}}], targets: [{modelRewrite: y, weight: 3}]}]
"""
SAMPLES += [text.encode() for text in OTHERS.split("=====\n")]
ODD = st.sampled_from(
    [b"", b"~", b"[]", b"{}", b"- ", b": ", b"0", b"-1", b"1e999", b".nan", b"1s", b"9" * 5000, b"x", b"'",
     b'"', b"\t", b"\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"&a ", b"*a", b"<<: *a", b"!!bool no idea",
     b"!!int ''", b"!!timestamp x", b"!!set {a}", b"!!binary =", b"? ", b"--- ", b"...", b"%YAML 9.9", b"|",
     b"%TAG ! x", b'"\\ud800"', b'"\\U0010ffff"', b"{[a]: b}", b"2024-13-45", b"queue-scorer", b"default",
     b"pluginRef: ", b"type: ", b"parameters: ", b"name: ", b"weight: "]
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sample with a few spans taken out, doubled, moved or replaced."""
    text = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        put = draw(ODD | st.binary(max_size=4) | st.just(text[start:end] * 2) | st.just(text[end : end + 60]))
        text = text[:start] + put + text[end:]
    return text


@settings(max_examples=400)
@given(damaged(), st.booleans())
@example(b"endpoints: [!!bool x]", False)
@example(b"endpoints: [!!timestamp x]", False)
def test_a_damaged_file_gets_an_answer(tmp_path_factory: pytest.TempPathFactory, text: bytes, alpha: bool):
    file = tmp_path_factory.getbasetemp() / f"damaged-{os.getpid()}.yaml"
    file.write_bytes(text)
    out = io.StringIO()
    code = validate([str(file)], out, show_defaults=True, allow_experimental=alpha)
    said = out.getvalue()
    assert said.encode().decode() == said
    errors = sum(line.startswith(f"{file}: error: ") for line in said.splitlines())
    assert (code, f"{file}: ok" in said) == ((1, False) if errors else (0, True))
