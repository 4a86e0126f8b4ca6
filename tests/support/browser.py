"""A browser's page in tests: logging in, and what is wrong with what it shows."""

from __future__ import annotations

from typing import Any

from tests.support.console import PASSWORD

PHONE = 390
ONLY = {"resultTypes": ["violations"]}


class Visit:
    """One person's page, and all that was found wrong on the way: axe's verdicts, widths, errors."""

    def __init__(self, page: Any, axe: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.verdicts: list[str] = []
        self.errors: list[str] = []
        self._axe = axe
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)

    def _said(self, said: Any) -> None:
        # A page that is meant to be refused is told of by the browser as well.
        if said.type == "error" and "the server responded with a status of 4" not in said.text:
            self.errors.append(said.text)

    def go(self, path: str) -> None:
        """Open a page of the console."""
        self.page.goto(f"{self.url}{path}")

    def log_in(self, user: str) -> None:
        """With the password all have in tests."""
        self.page.get_by_label("Username").fill(user)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(lambda url: "/login/" not in url)

    def arrives(self, heading: str) -> None:
        """Wait for the page with this heading."""
        self.page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()

    def check(self) -> None:
        """Keep what axe says against the page in both themes, and whether it is wider than a phone."""
        self.page.wait_for_load_state()
        complaints = len(self.errors)
        for theme in ("light", "dark"):
            # Without motion: colours on their way from one theme to the other are of none.
            self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            for violation in self._axe.run(self.page, options=ONLY).response["violations"]:
                targets = [node["target"] for node in violation["nodes"]]
                self.verdicts.append(f"{self.page.url} {theme}: {violation['id']} {targets}")
        # Axe reads imported style sheets by styles of its own, which the policy forbids.
        del self.errors[complaints:]
        self.page.emulate_media(reduced_motion="null")
        wide = self.page.viewport_size
        self.page.set_viewport_size({"width": PHONE, "height": 844})
        width = self.page.evaluate("document.documentElement.scrollWidth")
        self.page.set_viewport_size(wide)
        if width != PHONE:
            self.verdicts.append(f"{self.page.url}: {width} pixels wide on a phone of {PHONE}")

    def found(self) -> tuple[list[str], list[str]]:
        """All that is wrong."""
        return self.verdicts, self.errors
