"""What a struct says of its fields: the string below each field, as an editor or a console shows it.

Python keeps no docstrings of attributes, so they are read from the class's source, once per class.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise


@lru_cache(maxsize=512)
def field_docs(kind: type) -> Mapping[str, str]:
    """Field name -> its text in one line, inherited fields included; nothing where no source is at hand."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] not in {"builtins", "msgspec"}:
            docs.update(_own(base))
    return docs


def class_doc(kind: type) -> str:
    """The class's own docstring in one line; empty without one."""
    return _one_line(kind.__dict__.get("__doc__") or "")


def _own(kind: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):  # made at run time, or its source is not installed
        return {}
    docs: dict[str, str] = {}
    members = body.body if isinstance(body, ast.ClassDef) else []
    for field, text in pairwise(members):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            docs[field.target.id] = _one_line(text.value.value)
    return docs


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())
