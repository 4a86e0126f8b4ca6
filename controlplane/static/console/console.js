// What every page does: the theme button, and the CSRF token of requests that htmx makes.
const NEXT = { "": "light", light: "dark", dark: "" };
const SAID = { "": "as the system", light: "light", dark: "dark" };
const button = document.getElementById("theme");

function show(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  if (button) button.setAttribute("aria-label", `Theme: ${SAID[theme]}`);
}

if (button) {
  show(document.documentElement.dataset.theme ?? "");
  button.addEventListener("click", () => {
    const theme = NEXT[document.documentElement.dataset.theme ?? ""];
    show(theme);
    try {
      if (theme) localStorage.setItem("theme", theme);
      else localStorage.removeItem("theme");
    } catch {
      // Browsers may forbid pages to keep anything; the theme then lasts as long as the page.
    }
  });
}

document.body.addEventListener("htmx:configRequest", (event) => {
  const token = document.querySelector("input[name=csrfmiddlewaretoken]");
  if (token) event.detail.headers["X-CSRFToken"] = token.value;
});
