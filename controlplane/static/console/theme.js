// Sets the theme before anything is drawn, so that no page flashes: light, dark, or as the system has it.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // Browsers may forbid pages to keep anything; the system's theme it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
