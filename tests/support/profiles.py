"""Configurations with two profiles between which a picker chooses."""

from __future__ import annotations

from typing import Any

FIELD: dict[str, Any] = {
    "type": "body-field-to-header",
    "name": "model",
    "parameters": {"fieldName": "model", "headerName": "x-model"},
}
USER: dict[str, Any] = {
    "type": "body-field-to-header",
    "name": "user",
    "parameters": {"fieldName": "user", "headerName": "x-user"},
}
BODY = {"model": "m", "user": "u"}
STRICT, OPEN = {"x-model": "m", "x-user": "u"}, {"x-model": "m"}


def two_profiles(picker: dict[str, Any]) -> dict[str, Any]:
    """``strict`` names model and user in headers, ``open`` the model alone."""
    return {
        "plugins": [FIELD, USER, picker],
        "profilePicker": {"pluginRef": picker["name"]},
        "profiles": [
            {"name": "strict", "plugins": {"request": [{"pluginRef": "model"}, {"pluginRef": "user"}]}},
            {"name": "open", "plugins": {"request": [{"pluginRef": "model"}]}},
        ],
    }
