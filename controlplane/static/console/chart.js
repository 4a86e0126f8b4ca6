// One chart: a number, lines where the library for them is there, a legend that hides lines, and the same in
// words and as a table. Colours come from tokens.css, so that both themes and a change of theme are right.
const HEIGHT = 180;
const FONT = "12px system-ui, sans-serif";
const STEP_S = 5; // what is drawn as one point
const SPAN = "in the last 15 minutes";

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function summed(values) {
  const told = values.filter((value) => value !== null);
  if (!told.length) return null;
  return { now: values.at(-1), least: Math.min(...told), mean: mean(told), most: most(told) };
}

function most(told) {
  return Math.max(...told);
}

function mean(told) {
  return told.reduce((total, value) => total + value, 0) / told.length;
}

// Of each five seconds one value; they begin where the clock's do, so that what is drawn stays as it is.
function thinned(times, values, of) {
  const found = [];
  for (let index = 0; index < times.length; ) {
    const bucket = Math.floor(times[index] / STEP_S);
    const told = [];
    for (; index < times.length && Math.floor(times[index] / STEP_S) === bucket; index += 1) {
      if (values[index] !== null) told.push(values[index]);
    }
    // The last one is on its way; a mean of few seconds would swing.
    const isEnough = told.length > (index === times.length && of === mean ? STEP_S / 2 : 0);
    found.push(isEnough ? of(told) : null);
  }
  return found;
}

function clock(second, withSeconds) {
  const parts = { hour: "2-digit", minute: "2-digit", hour12: false };
  return new Date(second * 1000).toLocaleTimeString([], withSeconds ? { ...parts, second: "2-digit" } : parts);
}

export class Chart {
  constructor(root, toggled) {
    const data = root.dataset;
    this.toggled = toggled;
    this.unit = data.unit;
    this.scale = Number(data.scale);
    this.digits = Number(data.digits);
    this.most = Number(data.most);
    this.ofFive = data.ofFive === "most" ? most : mean;
    this.lines = data.lines.split("|").map((text) => {
      const [metric, label] = text.split(":");
      return { metric, label };
    });
    this.now = root.querySelector(".stat-value");
    this.plot = root.querySelector(".plot");
    this.legend = root.querySelector(".legend");
    this.said = root.querySelector(".chart-said");
    this.details = root.querySelector("details");
    this.body = root.querySelector("tbody");
    this.format = new Intl.NumberFormat(undefined, {
      minimumFractionDigits: this.digits,
      maximumFractionDigits: this.digits,
    });
    for (const part of [this.legend, this.said, this.details]) part.hidden = false;
    this.plot.setAttribute("aria-hidden", "true"); // the words and the table say the same
    this.key = "";
  }

  text(value) {
    return value === null || value === undefined ? "–" : this.format.format(value);
  }

  // Of what is counted whole there are no halves.
  tick(value) {
    if (!this.digits && !Number.isInteger(value)) return "";
    return value.toLocaleString(undefined, { maximumFractionDigits: 2 });
  }

  withUnit(value) {
    return this.unit ? `${this.text(value)} ${this.unit}` : this.text(value);
  }

  show(ring, lines, hidden, isDrawn) {
    const columns = lines.map((line) => ring.values(line.scope, line.metric, this.scale));
    const sums = columns.map(summed);
    this.now.textContent = this.text(sums[0]?.now ?? null);
    this.words(lines, sums);
    const key = lines.map((line) => line.label).join("|");
    if (key !== this.key) this.rebuild(key, lines);
    if (this.uplot?.cursor.idx == null) this.values(columns, lines, hidden);
    this.rows(lines, sums);
    if (isDrawn && window.uPlot) this.draw(ring.times(), columns, lines, hidden);
  }

  words(lines, sums) {
    const [first] = sums;
    const said = first
      ? `${lines[0].label}: ${this.text(first.least)} to ${this.withUnit(first.most)}, mean ${this.withUnit(first.mean)}, ${SPAN}.`
      : `Nothing was told ${SPAN}.`;
    if (this.said.textContent !== said) this.said.textContent = said;
  }

  rebuild(key, lines) {
    this.key = key;
    this.uplot?.destroy();
    this.uplot = null;
    this.legend.replaceChildren(
      ...lines.map((line, index) => {
        const button = element("button", `legend-item series-${index}`);
        button.type = "button";
        const swatch = element("span", "swatch");
        swatch.setAttribute("aria-hidden", "true");
        button.append(swatch, element("span", "", line.label), element("span", "legend-value", "–"));
        button.addEventListener("click", () => this.toggled(line.label));
        return button;
      }),
    );
    this.body.replaceChildren(
      ...lines.map((line) => {
        const row = element("tr");
        const head = element("th", "", line.label);
        head.scope = "row";
        row.append(head, ...Array.from({ length: 4 }, () => element("td", "num")));
        return row;
      }),
    );
  }

  // The legend's numbers: of the second under the pointer, otherwise of now.
  values(columns, lines, hidden, index) {
    for (const [number, button] of [...this.legend.children].entries()) {
      const column = columns[number];
      button.setAttribute("aria-pressed", String(!hidden.has(lines[number].label)));
      button.lastChild.textContent = this.text(index == null ? column.at(-1) : column[index]);
    }
  }

  rows(lines, sums) {
    if (!this.details.open && this.body.dataset.filled) return;
    this.body.dataset.filled = "true";
    for (const [number, row] of [...this.body.children].entries()) {
      const sum = sums[number];
      const told = sum ? [sum.now, sum.least, sum.mean, sum.most] : [null, null, null, null];
      for (const [place, value] of told.entries()) row.children[place + 1].textContent = this.withUnit(value);
    }
  }

  draw(times, columns, lines, hidden) {
    this.plot.hidden = false;
    const drawn = columns.map((column) => thinned(times, column, this.ofFive));
    const data = [thinned(times, times, (seconds) => seconds[0]), ...drawn];
    if (!this.uplot) {
      this.uplot = new window.uPlot(this.options(lines), data, this.plot);
      this.resized ??= new ResizeObserver(() => {
        this.uplot?.setSize({ width: this.plot.clientWidth, height: HEIGHT });
      });
      this.resized.observe(this.plot);
    }
    for (const [index, line] of lines.entries()) {
      const isShown = !hidden.has(line.label);
      if (this.uplot.series[index + 1].show !== isShown) this.uplot.setSeries(index + 1, { show: isShown });
    }
    this.uplot.setData(data);
    this.shown = { columns: drawn, lines, hidden };
  }

  options(lines) {
    const axis = {
      stroke: () => token("--muted"),
      font: FONT,
      grid: { stroke: () => token("--line"), width: 1 },
      ticks: { show: false },
    };
    return {
      width: this.plot.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, sync: { key: "charts" }, points: { size: 7 } },
      scales: { x: { time: true }, y: { range: (_, __, top) => [0, Math.max(this.most, (top ?? 0) * 1.1)] } },
      series: [
        {},
        ...lines.map((line, index) => ({
          label: line.label,
          stroke: () => token(`--series-${index}`),
          width: index ? 1.5 : 2,
          dash: index > 4 ? [6, 4] : undefined,
          points: { show: false },
        })),
      ],
      axes: [
        { ...axis, size: 28, space: 70, values: (_, splits) => splits.map((second) => clock(second, false)) },
        {
          ...axis,
          size: 52,
          space: 36,
          values: (_, splits) => splits.map((value) => this.tick(value)),
        },
      ],
      hooks: { setCursor: [(uplot) => this.pointed(uplot.cursor.idx)] },
    };
  }

  pointed(index) {
    if (!this.shown) return;
    const { columns, lines, hidden } = this.shown;
    if (index != null) this.values(columns, lines, hidden, index);
    const said = index == null ? "" : `At ${clock(this.uplot.data[0][index], true)}`;
    this.legend.dataset.at = said;
  }
}
