// Charts of a page: the websocket fills a ring, and every second numbers, legends and lines are drawn from it.
// Whatever is missing (the chart library, the connection) takes only its own part away.
import { Chart } from "./chart.js";
import { Live } from "./live.js";
import { Ring } from "./ring.js";

const MOST_POOLS = 8;
const CALM_S = 10; // with reduced motion lines move so often
const panel = document.getElementById("charts");
const why = document.getElementById("charts-why");
const pause = document.getElementById("charts-pause");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const charts = [...panel.querySelectorAll(".chart")].map((element) => new Chart(element, toggled));
const hidden = new Set();
let ring = null;
let drawnAt = 0;

function clock(second) {
  return new Date(second * 1000).toLocaleTimeString([], { hour12: false });
}

function linesOf(chart) {
  if (panel.dataset.byPool === undefined) return chart.lines.map((line) => ({ ...line, scope: "" }));
  const [first] = chart.lines;
  const pools = ring.pools.map((pool) => ({ scope: pool, metric: first.metric, label: pool }));
  return [{ ...first, scope: "" }, ...pools];
}

function toggled(label) {
  if (hidden.has(label)) hidden.delete(label);
  else hidden.add(label);
  draw(true);
}

function draw(isAsked) {
  if (!ring) return;
  const isDue = isAsked || !calm.matches || ring.last - drawnAt >= CALM_S;
  if (isDue) drawnAt = ring.last;
  for (const chart of charts) chart.show(ring, linesOf(chart), hidden, isDue);
}

function heard(message) {
  if (message.type === "snapshot") ring = new Ring(message);
  else if (ring) ring.add(message, MOST_POOLS);
  draw(message.type === "snapshot");
}

function changed(state, reason) {
  const silent = state === "live" && ring && ring.last - (ring.heardAt ?? 0) > 5;
  const shown = !silent ? state : ring.heardAt ? "off" : "unheard";
  for (const element of panel.querySelectorAll("[data-state]")) element.hidden = element.dataset.state !== shown;
  const since = ring && ring.heardAt && shown === "off" ? ` Numbers are of ${clock(ring.heardAt)}.` : "";
  const text = silent ? (ring.heardAt ? "no worker is heard." : "") : reason;
  const said = `${text}${since}`;
  if (why.textContent !== said) why.textContent = said;
  panel.classList.toggle("is-stale", shown === "off");
}

if (panel.dataset.socket) {
  const live = new Live(panel.dataset.socket, heard, changed);
  pause.hidden = false;
  pause.addEventListener("click", () => {
    const isPaused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(isPaused));
    live.pause(isPaused);
  });
  const redraw = () => draw(true);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
