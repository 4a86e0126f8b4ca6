// Sets the theme before anything is drawn, so that no page flashes: light, dark, or as the system has it.
(() => {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
