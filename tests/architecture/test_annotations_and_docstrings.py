"""Every function says what it returns, and every module that holds something says why it exists."""

import ast

from tests.architecture.tree import shipped


def test_every_shipped_function_has_a_return_annotation():
    missing = [
        f"{module.path}:{function.lineno} {function.name}"
        for module in shipped()
        for function in module.functions()
        if function.returns is None
    ]
    assert missing == []


def test_every_module_with_content_opens_with_a_docstring():
    silent = [
        module.path
        for module in shipped()
        if ast.get_docstring(module.tree) is None
        and any(not isinstance(node, ast.Import | ast.ImportFrom) for node in module.tree.body)
    ]
    assert silent == []
