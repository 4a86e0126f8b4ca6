// The last seconds of many lines, a value per second: what came as columns first, then second by second.
const HELD_S = 5; // a value stands for so long when the next one is late

export class Ring {
  constructor(snapshot) {
    this.seconds = snapshot.seconds;
    this.last = snapshot.at + snapshot.seconds - 1;
    this.lines = new Map(); // name of a scope ("" = all) -> metric -> values
    this.heardAt = null;
    this.put("", snapshot.total);
    for (const [pool, columns] of Object.entries(snapshot.pools)) this.put(pool, columns);
    const index = Object.values(snapshot.total)[0].findLastIndex((value) => value !== null);
    if (index >= 0) this.heardAt = snapshot.at + index;
  }

  put(scope, columns) {
    this.lines.set(scope, new Map(Object.entries(columns)));
  }

  // A second's values; pools that are new get a line while there are fewer than `most`.
  add(delta, most) {
    const steps = Math.min(this.seconds, delta.at - this.last);
    if (steps > 0) this.last = delta.at;
    for (let step = 0; step < steps; step += 1) {
      for (const metrics of this.lines.values()) {
        for (const values of metrics.values()) {
          values.shift();
          values.push(null);
        }
      }
    }
    if (delta.total) this.heardAt = delta.at;
    const index = this.seconds - 1 - Math.max(0, this.last - delta.at);
    if (index < 0) return;
    this.set("", delta.total, index);
    for (const [pool, values] of Object.entries(delta.pools)) {
      if (!this.lines.has(pool) && this.lines.size <= most) {
        const empty = Object.keys(values).map((metric) => [metric, Array(this.seconds).fill(null)]);
        this.lines.set(pool, new Map(empty));
      }
      this.set(pool, values, index);
    }
  }

  set(scope, values, index) {
    const metrics = this.lines.get(scope);
    if (!values || !metrics) return;
    for (const [metric, value] of Object.entries(values)) metrics.get(metric)[index] = value;
  }

  get pools() {
    return [...this.lines.keys()].filter((scope) => scope);
  }

  times() {
    return Array.from({ length: this.seconds }, (_, index) => this.last - this.seconds + 1 + index);
  }

  // Values to draw: short holes are filled with what was before them.
  values(scope, metric, scale) {
    const found = this.lines.get(scope)?.get(metric) ?? [];
    let held = null;
    let age = 0;
    return found.map((value) => {
      age = value === null ? age + 1 : 0;
      if (value !== null) held = value;
      return held === null || age > HELD_S ? null : held * scale;
    });
  }
}
