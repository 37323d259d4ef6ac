// Line charts: logarithmic or linear axes, bands, a legend that hides lines, a cursor for mouse and keyboard.

const DASHES = ["", "8 4", "2 3", "10 4 2 4", "5 2", "1 2", "12 3", "3 6"];
const MARGIN = { left: 84, right: 14, top: 12, bottom: 42 };

const positive = (values) => values.filter((v) => v !== null && Number.isFinite(v) && v > 0);
const finite = (values) => values.filter((v) => v !== null && Number.isFinite(v));

function linearTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  if (decades < 0.7) return linearTicks(low, high, count);
  const factors = decades < 2.2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / count));
  const ticks = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p += 1) {
    if (p % every !== 0) continue;
    for (const f of factors) if (f * 10 ** p >= low * (1 - 1e-9) && f * 10 ** p <= high * (1 + 1e-9)) ticks.push(f * 10 ** p);
  }
  return ticks;
}

/** A scale from data to pixels. */
function scale(values, log, from, to, floor = 0) {
  let known = log ? positive(values) : finite(values);
  if (!known.length) known = log ? [1, 10] : [0, 1];
  let low = known.reduce((a, b) => Math.min(a, b));
  let high = known.reduce((a, b) => Math.max(a, b));
  if (log && floor) low = Math.max(low, high * floor);
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  // Values that agree to a few per cent look alike, and their ticks keep short names.
  if (log && high / low < 1.25) [low, high] = [Math.sqrt(low * high / 1.25), Math.sqrt(low * high * 1.25)];
  const pad = log ? (high / low) ** 0.04 : (high - low) * 0.04;
  [low, high] = log ? [low / pad, high * pad] : [low - pad, high + pad];
  const f = log ? Math.log : (v) => v;
  const at = (v) => from + ((f(v) - f(low)) / (f(high) - f(low))) * (to - from);
  return { low, high, log, at, ticks: (count) => (log ? logTicks : linearTicks)(low, high, count) };
}

const MARKERS = [
  (x, y) => `M${x - 3.5},${y}a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0`,
  (x, y) => `M${x - 3},${y - 3}h6v6h-6z`,
  (x, y) => `M${x},${y - 4}l4,7h-8z`,
  (x, y) => `M${x},${y - 4.4}l4.4,4.4l-4.4,4.4l-4.4,-4.4z`,
  (x, y) => `M${x},${y + 4}l4,-7h-8z`,
];
const marker = (style, x, y) => MARKERS[(typeof style === "number" ? style : 0) % MARKERS.length](x, y);

/** An open mark around a point: { r, square }. */
function ringPath({ r, square }, x, y) {
  return square ? `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z` : `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`;
}

function polyline(points) {
  let path = "";
  let pen = false;
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${x.toFixed(2)},${y.toFixed(2)}`;
    pen = true;
  }
  return path;
}

/** The class of a line's colour: eight of them, then again with other markers. */
const tone = (s) => `k${typeof s.style === "number" ? s.style % 8 : s.style}`;
const dashOf = (s) => s.dash ?? (typeof s.style === "number" ? DASHES[s.style % DASHES.length] : "");

/** Short names of ticks, with as many digits as tell them apart. */
function tickNames(values) {
  let names = [];
  for (let digits = 3; digits < 9; digits += 1) {
    names = values.map((v) => tick(v, digits));
    if (new Set(names).size === names.length) break;
  }
  return names;
}

function axisParts(spec, { x, y, width, height }) {
  const bottom = height - MARGIN.bottom;
  const parts = [];
  const across = x.ticks(Math.floor(width / 80)).filter((at) => !spec.x.whole || Number.isInteger(at));
  const names = tickNames(across);
  for (const [i, v] of across.entries()) {
    parts.push(make("line", { class: "grid", x1: x.at(v), x2: x.at(v), y1: MARGIN.top, y2: bottom }));
    parts.push(make("text", { x: x.at(v), y: bottom + 16, "text-anchor": "middle" }, names[i]));
  }
  const up = y.ticks(6);
  const beside = spec.y.show ? up.map(spec.y.show) : tickNames(up);
  for (const [i, v] of up.entries()) {
    parts.push(make("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y.at(v), y2: y.at(v) }));
    parts.push(make("text", { x: MARGIN.left - 7, y: y.at(v) + 4, "text-anchor": "end" }, beside[i]));
  }
  parts.push(make("path", { class: "frame", d: `M${MARGIN.left},${MARGIN.top}V${bottom}H${width - MARGIN.right}` }));
  parts.push(make("text", { class: "axis-title", x: (MARGIN.left + width) / 2, y: height - 6, "text-anchor": "middle" }, spec.x.label));
  parts.push(make("text", { class: "axis-title", x: -(MARGIN.top + bottom) / 2, y: 12, transform: "rotate(-90)", "text-anchor": "middle" }, spec.y.label));
  return parts;
}

function ruleLine(r, { y, width }) {
  return make("g", {}, make("line", { class: "rule", x1: MARGIN.left, x2: width - MARGIN.right, y1: y.at(r.y), y2: y.at(r.y) }),
    make("text", { x: MARGIN.left + 5, y: y.at(r.y) - 5 }, r.name));
}

/** Where a name beside a mark at (px, py) does not cover the name of a mark nearby. */
function apart(drawn, px, py) {
  const near = drawn.named.filter(([ox]) => Math.abs(ox - px) < 130).map(([, oy]) => oy);
  const rooms = [py, ...near.flatMap((oy) => [oy - 13, oy + 13])].filter((at) => at < drawn.height - 8 && near.every((oy) => Math.abs(oy - at) > 12));
  const found = rooms.reduce((a, b) => (Math.abs(b - py) < Math.abs(a - py) ? b : a), rooms[0] ?? py);
  drawn.named.push([px, found]);
  return found;
}

function lineParts(s, drawn) {
  const { x, y } = drawn;
  const below = (i) => i >= 0 && s.y[i] !== null && s.y[i] < y.low;
  const clamp = (v) => (v === null || (y.log && v <= 0) ? NaN : y.at(Math.min(y.high, Math.max(v, y.low))));
  const points = s.x.map((v, i) => [v === null || (x.log && v <= 0) ? NaN : x.at(v), s.y[i] === null || (below(i) && below(i - 1)) ? NaN : clamp(s.y[i])]);
  const parts = [];
  if (s.ring) return [make("path", { class: `ring ${tone(s)}`, d: points.map(([px, py]) => ringPath(s.ring, px, py)).join(""), "data-name": s.name })];
  const bounded = (s.low ?? []).map((low, i) => [points[i][0], low, s.high[i]]).filter(([, a, b]) => a !== null && b !== null);
  if (s.bars) {
    const caps = (px, a) => `M${px - 4},${a}h8`;
    const bars = bounded.map(([px, a, b]) => `M${px},${clamp(a)}V${clamp(b)}${caps(px, clamp(a))}${caps(px, clamp(b))}`);
    parts.push(make("path", { class: `bar-of ${tone(s)}`, d: bars.join("") }));
  } else if (bounded.length > 1) {
    const up = bounded.map(([px, , b]) => [px, Math.max(MARGIN.top, clamp(b))]);
    const down = bounded.map(([px, a]) => [px, Math.min(drawn.height - MARGIN.bottom, clamp(a))]).reverse();
    parts.push(make("path", { class: `band ${tone(s)}`, d: `${polyline([...up, ...down])}Z` }));
  }
  if (!s.dots) parts.push(make("path", { class: `line ${tone(s)}`, d: polyline(points), "stroke-dasharray": dashOf(s), "data-name": s.name }));
  const every = s.dots ? 1 : Math.max(1, Math.ceil(points.length / 14));
  const marks = points.filter(([px, py], i) => i % every === 0 && Number.isFinite(px) && Number.isFinite(py));
  if (s.style !== "truth" && !s.plain) parts.push(make("path", { class: `dot ${tone(s)}`, d: marks.map(([px, py]) => marker(s.style, px, py)).join("") }));
  if (s.dots && s.text) {
    const [px, py] = points[0];
    const right = px + 14 + 6.4 * s.text.length < drawn.width; // else it would be cut off
    parts.push(make("text", { class: "mark-name", x: px + (right ? 9 : -9), y: apart(drawn, px, py) + 4, "text-anchor": right ? "start" : "end" }, s.text));
  }
  return parts;
}

class Chart {
  constructor(host, spec) {
    Object.assign(this, { spec, hidden: new Set(), drawn: null, at: null });
    this.legend = make("ul", { class: "legend", "aria-label": "Lines, press to hide or show" });
    this.canvas = make("svg", { tabindex: 0, role: "img" });
    this.tip = make("div", { class: "tip", role: "status", hidden: true });
    this.body = make("div", { class: "chart" }, this.canvas, this.tip);
    host.replaceChildren(this.legend, this.body);
    this.listen();
    this.drawLegend();
    this.draw();
  }

  replace(spec) {
    this.spec = spec;
    this.point(null);
    this.drawLegend();
    this.draw();
  }

  drawLegend() {
    const { spec, hidden } = this;
    const entries = spec.series.filter((s, i) => spec.series.findIndex((other) => other.name === s.name) === i); // lines of one name go together
    this.legend.hidden = entries.length < 2;
    this.legend.replaceChildren(...entries.map((s) => make("li", {}, make("button", {
      type: "button", "aria-pressed": !hidden.has(s.name) ? "true" : "false",
      onclick: (event) => {
        if (hidden.has(s.name)) hidden.delete(s.name); else hidden.add(s.name);
        event.currentTarget.setAttribute("aria-pressed", hidden.has(s.name) ? "false" : "true");
        this.draw();
      },
    }, make("svg", { class: `${tone(s)}`, viewBox: "0 0 30 12", "aria-hidden": "true" },
      s.ring ? make("path", { class: `ring ${tone(s)}`, d: ringPath({ ...s.ring, r: 5 }, 15, 6) }) : make("path", { class: `line ${tone(s)}`, d: "M0,6H30", "stroke-dasharray": dashOf(s) }),
      s.style === "truth" || s.plain || s.ring ? null : make("path", { class: "dot", d: marker(s.style, 15, 6) })), s.name))));
  }

  draw() {
    const { spec, canvas } = this;
    const width = Math.max(260, this.body.clientWidth || 640);
    const height = spec.height ?? Math.min(360, Math.max(230, width * 0.5));
    const shown = spec.series.filter((s) => !this.hidden.has(s.name));
    const rules = spec.rules ?? [];
    const x = scale(shown.flatMap((s) => s.x), spec.x.log, MARGIN.left, width - MARGIN.right);
    const values = spec.y.range ?? shown.flatMap((s) => (s.bars ? [...s.y, ...s.low, ...s.high] : s.y)).concat(rules.map((r) => r.y));
    const y = scale(values, spec.y.log && positive(values).length > 0, height - MARGIN.bottom, MARGIN.top, spec.y.floor);
    const drawn = { x, y, shown, width, height, named: [] };
    this.drawn = drawn;
    canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    canvas.setAttribute("aria-label", `${spec.label}. Lines: ${[...new Set(shown.map((s) => s.name))].join(", ")}. Arrow keys move a cursor.`);
    canvas.replaceChildren(...axisParts(spec, drawn), ...rules.map((r) => ruleLine(r, drawn)), ...shown.flatMap((s) => lineParts(s, drawn)),
      make("line", { class: "cursor", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" }));
  }

  /** Put the cursor at a value of x and tell what every line has there; null removes it. */
  point(position) {
    const { canvas, tip, drawn, spec } = this;
    this.at = position;
    const cursor = canvas.querySelector(".cursor");
    if (position === null || !drawn) { tip.hidden = true; cursor?.setAttribute("visibility", "hidden"); return; }
    const px = drawn.x.at(position);
    cursor.setAttribute("x1", px); cursor.setAttribute("x2", px); cursor.setAttribute("visibility", "visible");
    const rows = drawn.shown.map((s) => {
      const i = this.nearest(s.x, position);
      return i < 0 || (s.ring && s.x[i] !== position) ? null : make("div", {}, `${s.said ?? s.name}: ${show(s.y[i], 4)}${s.more ? s.more(i) : ""}`);
    });
    tip.replaceChildren(make("strong", {}, `${spec.x.short ?? spec.x.label} ${show(position, 4)}`), ...rows.filter(Boolean));
    tip.hidden = false;
    const shareX = px / drawn.width;
    tip.style.top = "8px";
    tip.style.left = shareX < 0.5 ? `${shareX * 100 + 1.5}%` : "auto";
    tip.style.right = shareX < 0.5 ? "auto" : `${(1 - shareX) * 100 + 1.5}%`;
  }

  nearest(xs, position) {
    const f = this.drawn.x.log ? Math.log : (v) => v;
    let best = -1;
    xs.forEach((v, i) => { if (v !== null && (best < 0 || Math.abs(f(v) - f(position)) < Math.abs(f(xs[best]) - f(position)))) best = i; });
    return best;
  }

  /** Every x at which some line has a value. */
  stops() {
    return [...new Set(this.drawn.shown.flatMap((s) => s.x).filter((v) => v !== null && Number.isFinite(v)))].sort((a, b) => a - b);
  }

  /** The x nearest to a pointer at which some line has a value. */
  stopAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const px = ((event.clientX - box.left) / box.width) * this.drawn.width;
    const { at } = this.drawn.x;
    return this.stops().reduce((a, b) => (a === null || Math.abs(at(b) - px) < Math.abs(at(a) - px) ? b : a), null);
  }

  /** Take the point at x, where the chart is one to choose from. */
  take(position) {
    if (!this.spec.pick || position === null) return;
    this.spec = this.spec.pick(position);
    this.drawLegend();
    this.draw();
    this.point(position);
  }

  listen() {
    const { canvas, body } = this;
    canvas.addEventListener("pointermove", (event) => { const found = this.stopAt(event); if (found !== null) this.point(found); });
    canvas.addEventListener("click", (event) => this.take(this.stopAt(event)));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("keydown", (event) => {
      const list = this.stops();
      const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") this.point(null);
      if (this.spec.pick && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); this.take(this.at); }
      if (move === undefined || !list.length) return;
      event.preventDefault();
      const now = this.at === null ? (move > 0 ? -1 : list.length) : list.indexOf(this.at);
      this.point(list[Math.min(list.length - 1, Math.max(0, now + move))]);
    });
    let width = 0;
    new ResizeObserver(() => { if (Math.abs(body.clientWidth - width) > 1) { width = body.clientWidth; this.draw(); } }).observe(body);
  }
}

/**
 * Draw a chart into `host`.
 * spec: { label, x: {label, log, whole}, y: {label, log, floor, range}, height, rules: [{y, name}],
 *         series: [{name, said, style, x, y, low, high, bars, ring, dots, dash, plain, more}],
 *         pick: x → the spec after a click or Enter there }   (style: number or the name of a colour)
 * Returns a function that draws another spec in its place.
 */
function chart(host, spec) {
  const made = new Chart(host, spec);
  return (next) => made.replace(next);
}
