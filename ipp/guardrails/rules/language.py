"""Languages that text may be in, told by the statistics of its letters (97 languages, no network).

A text is judged in stretches, so that a few sentences in another language are seen in a long text; of very
long texts ``MAX_STRETCHES``, spread evenly, are judged. A stretch counts as another language only when that
is nearly sure. What is hardly prose (code, numbers, addresses) is not judged, nor are less letters than the
policy names. Languages that are nearly one (Norwegian and Danish, Croatian and Serbian) are told apart
poorly; who allows one of them does well to allow the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from dataplane.config.guardrails import Languages
from dataplane.errors import ConfigError, did_you_mean
from ipp.guardrails.matches import Match

STRETCH: Final = 400
"""Characters judged at once."""
MAX_STRETCHES: Final = 32
SURE: Final = 0.9
"""How probable another language must be, as against all those allowed together."""
MIN_LETTERS_SHARE: Final = 0.6
"""Of a stretch's characters that are no white space, in prose."""

_NO_LANGUAGE: Final = "zxx"
_SPACE: Final = re.compile(r"\s")


class LanguageRule:
    """Kinds are ``language xx``, by the code of what the stretch is in."""

    longest = None

    def __init__(self, parameters: Languages) -> None:
        self._identify = _identifier()
        known = set(self._identify.labels)
        for index, code in enumerate(parameters.allowed):
            if code not in known:
                raise ConfigError(
                    f"is no language that can be told{did_you_mean(code, known)}", path=f"allowed[{index}]"
                )
        self._allowed = frozenset(parameters.allowed)
        self._min_characters = parameters.min_characters

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        found: list[Match] = []
        for begin, end in _stretches(text, start):
            code, sure = self._other(text[begin:end])
            if code:
                kind = f"language {code}"
                if found and found[-1].end == begin and found[-1].kind == kind:
                    found[-1] = found[-1]._replace(end=end, score=max(sure, found[-1].score))
                else:
                    found.append(Match(begin, end, kind, sure))
        return found

    def _other(self, stretch: str) -> tuple[str, float]:
        """The language that is not allowed, and how sure that is; empty when there is none."""
        letters = sum(map(str.isalpha, stretch))
        if letters < self._min_characters or letters < MIN_LETTERS_SHARE * len(_SPACE.sub("", stretch)):
            return "", 0.0
        ranked = self._identify.rank(stretch.encode("utf-8", "replace").decode())
        allowed = float(sum(share for code, share in ranked if code in self._allowed))
        code = ranked[0][0]
        other = code != _NO_LANGUAGE and code not in self._allowed and 1 - allowed >= SURE
        return (code, 1 - allowed) if other else ("", 0.0)


def _stretches(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where the stretches are, cut at white space."""
    bounds = [start]
    while bounds[-1] < len(text):
        end = min(bounds[-1] + STRETCH, len(text))
        if end < len(text):
            space = max(
                text.rfind(" ", bounds[-1] + STRETCH // 2, end), text.rfind("\n", bounds[-1] + 1, end)
            )
            end = space + 1 if space > 0 else end
        # A rest too short to be judged belongs to what comes before it.
        bounds.append(len(text) if len(text) - end < STRETCH // 4 else end)
    count = len(bounds) - 1
    judged = min(count, MAX_STRETCHES)
    for index in (k * (count - 1) // max(judged - 1, 1) for k in range(judged)):
        yield bounds[index], bounds[index + 1]


@lru_cache(maxsize=1)
def _identifier() -> Any:
    """The statistics; a hundred megabytes and half a second, so only where a policy asks for them."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
