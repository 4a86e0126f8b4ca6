"""Guardrail policies among the configurations that are rolled out; drafts of them can be tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controlplane.configs import rollouts
from controlplane.configs.creating import Starter
from controlplane.configs.models import ConfigDocument
from controlplane.configs.places import Place
from controlplane.core.console import texts
from controlplane.core.errors import InvalidError
from controlplane.core.roles import Action, Actor, require
from controlplane.policies.pages.trying import Tried, TryForm, try_out
from controlplane.policies.services import GuardrailPolicyService


class PolicyPlace(Place):
    """A policy's page is the one of its document."""

    service = GuardrailPolicyService
    key = "guardrail"
    template = "policies/editor.html"
    create_template = "policies/create.html"
    base = "policies/policy_base.html"
    pane_template = "policies/tried.html"
    title = "Guardrails"
    noun = "guardrail policy"
    goes = (
        "The policy goes from all payload processors at once, and its revisions go with it. To keep it "
        "and have it enforce nothing, publish it with enabled: false."
    )

    def document(self, actor: Actor, name: str) -> ConfigDocument:
        """The one of this name."""
        require(actor, Action.READ, self.service.kind)
        return rollouts.found(name, self.service.kind)

    def around(self, actor: Actor, name: str, row: ConfigDocument) -> dict[str, Any]:
        """Nothing but its name."""
        return {}

    def whose(self, name: str, row: ConfigDocument) -> str:
        """Everybody's: each may see any traffic."""
        return "(payload processors of every name)"

    def pane(self, actor: Actor, posted: Mapping[str, str] | None) -> dict[str, Any]:
        """The pane in which a draft is tried, with what came of it when it was."""
        if posted is None or posted.get("do") != "try":
            return {"tried": Tried(TryForm(initial=dict(posted or {})))}
        text = posted.get("text", "")
        try:
            draft = texts.read(text)
            name = GuardrailPolicyService().judge(draft).name
        except InvalidError as error:
            form = TryForm(initial=dict(posted))
            return {"tried": Tried(form, problems=texts.problems_of(error, text))}
        return {"tried": try_out(actor, posted, name, draft)}


_HEAD: Final = """apiVersion: pointsman.dev/v1
kind: GuardrailPolicy
metadata:
  name: {name}
spec:
  enabled: true
  priority: 0
  # tenants: [research, "team-*"]   # left out: all
  # models: ["llama-*"]
  # pools: [edge]
  rules:
"""


def _starter(key: str, title: str, what: str, rules: str) -> Starter:
    return Starter(key, title, what, _HEAD.format(name=key) + rules)


STARTERS: Final = (
    _starter(
        "personal-data",
        "Personal data masked",
        "Placeholders go to the model in place of personal data; the caller gets the originals back.",
        """  - name: personal-data
    type: pii
    mode: mask
    stages: [request, response, stream]
    parameters:
      entities: [email, phone, iban, card, nationalId]
      restore: true
""",
    ),
    _starter(
        "secrets",
        "Secrets blocked",
        "Requests with keys, tokens or passwords are refused; answers that tell one end there.",
        """  - name: secrets
    type: pii
    mode: block
    stages: [request, response, stream]
    parameters:
      entities: [secret]
    message: Keys and passwords do not belong in requests.
""",
    ),
    _starter(
        "prompt-injection",
        "Prompt injection flagged",
        "Text that gives the model other orders, and characters that hide it, are counted and told.",
        """  - name: other-orders
    type: promptInjection
    mode: flag
    parameters:
      threshold: 0.8
  - name: hidden-characters
    type: unicode
    mode: flag
    stages: [request]
""",
    ),
    _starter(
        "words",
        "Words kept inside",
        "Names that are nobody else's business are refused on the way in and cut on the way out.",
        """  - name: names
    type: keywords
    mode: block
    stages: [request, response, stream]
    parameters:
      words: [project heron, project zebra]
    message: Internal names stay here.
""",
    ),
    _starter(
        "limits",
        "Sizes limited",
        "Long prompts are refused, and answers get a limit where the request asks for more or for none.",
        """  - name: prompt
    type: maxInputTokens
    mode: block
    parameters:
      tokens: 32000
  - name: answer
    type: maxOutputTokens
    mode: mask
    parameters:
      tokens: 4000
""",
    ),
)

POLICIES: Final = PolicyPlace()
