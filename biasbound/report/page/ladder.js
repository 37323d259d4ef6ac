// The two-step-bias map with the ladder drawn over it, and the slider that redraws it.

const EXCESS = [0.003, 3]; // colours span biases from 1.003 to 4, logarithmically in bias − 1

/** The colour of a bias: light is harmless, dark is harmful, in grey print too. */
function biasColour(mean) {
  const share = Math.log(Math.max(mean - 1, EXCESS[0]) / EXCESS[0]) / Math.log(EXCESS[1] / EXCESS[0]);
  return css(between(CIVIDIS, 1 - share));
}

const EDGE = { left: 68, bottom: 46, top: 8 }; // around the cells, for ticks and titles

/** One cell per jump between the levels of a search, and the ladder that a tolerance gives. */
class LadderMap {
  constructor(host, searches) {
    Object.assign(this, { host, searches, search: null, bias: null, picked: null, tau: 1.05, result: null, size: 480, taken: null, onchoose: [] });
    this.canvas = make("svg", { tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-describedby": "cell" });
    host.replaceChildren(this.canvas);
  }

  geometry() {
    const n = this.search.landscape.levels.length;
    const cell = (this.size - EDGE.left - EDGE.top) / n; // rows fit too: `bottom` is less than `left`
    return { n, cell, x: (i) => EDGE.left + i * cell, y: (i) => this.size - EDGE.bottom - (i + 1) * cell };
  }

  drawMap() {
    const most = 130 + 110 * this.search.landscape.levels.length; // two levels need no large square
    this.size = Math.min(640, most, Math.max(270, this.host.clientWidth || 480));
    const { canvas, size } = this;
    canvas.style.maxWidth = `${size}px`;
    const { n, cell, x, y } = this.geometry();
    const levels = this.search.landscape.levels;
    byId("ladder").classList.toggle("single", n < 2); // a ladder that did not grow has no jumps, and its map is hidden
    canvas.setAttribute("viewBox", `0 0 ${size} ${size}`);
    canvas.setAttribute("aria-label", `Two-step bias of every jump between ${n} noise levels of ${this.search.name}. Arrow keys move from cell to cell.`);
    const cells = [];
    for (let to = 0; to < n; to += 1) {
      for (let from = to + 1; from < n; from += 1) {
        cells.push(make("rect", { class: "cell", x: x(from), y: y(to), width: cell + 0.4, height: cell + 0.4, fill: biasColour(this.bias(to, from).mean), "data-to": to, "data-from": from }));
      }
    }
    const ticks = [];
    const every = Math.max(1, Math.ceil(34 / cell));
    for (let i = 0; i < n; i += every) {
      ticks.push(make("text", { x: x(i) + cell / 2, y: size - EDGE.bottom + 15, "text-anchor": "middle" }, level(levels[i])));
      ticks.push(make("text", { x: EDGE.left - 6, y: y(i) + cell / 2 + 4, "text-anchor": "end" }, level(levels[i])));
    }
    canvas.replaceChildren(
      make("line", { class: "diagonal", x1: x(0), y1: y(-1), x2: x(n), y2: y(n - 1) }), ...cells, ...ticks,
      make("text", { class: "axis-title", x: (EDGE.left + size) / 2, y: size - EDGE.bottom + 34, "text-anchor": "middle" }, "jump from level σ′"),
      make("text", { class: "axis-title", x: -(size - EDGE.bottom) / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle" }, "down to level σ"),
      make("g", { id: "overlay" }), make("rect", { class: "picked", visibility: "hidden", width: cell, height: cell }));
  }

  /** The edges between cells within τ and cells above it. */
  borderPath() {
    const { n, cell, x, y } = this.geometry();
    const within = (to, from) => (to >= 0 && to < from && from < n ? this.bias(to, from).mean <= this.tau : null);
    let path = "";
    for (let to = 0; to < n; to += 1) {
      for (let from = to + 1; from < n; from += 1) {
        const here = within(to, from), right = within(to, from + 1), above = within(to + 1, from);
        if (right !== null && right !== here) path += `M${x(from + 1)},${y(to)}v${cell}`;
        if (above !== null && above !== here) path += `M${x(from)},${y(to)}h${cell}`;
      }
    }
    return path;
  }

  drawLadder() {
    const { cell, x, y } = this.geometry();
    const landscape = this.search.landscape;
    const greedy = () => greedySchedule(landscape.levels.length, this.bias, this.tau, startLevel(landscape, byId("start-rule").value));
    this.result = this.taken ? stepsOf(this.taken.levels, this.bias, this.tau) : greedy();
    const start = this.result.levels[0];
    const middle = (i) => [x(i) + cell / 2, y(i) + cell / 2];
    let path = `M${middle(start)}`;
    for (const s of this.result.steps) path += `H${middle(s.from)[0]}V${middle(s.from)[1]}`;
    const border = this.borderPath();
    this.canvas.querySelector("#overlay").replaceChildren(
      make("path", { class: "border-halo", d: border }), make("path", { class: "border-tau", d: border }),
      make("path", { class: "step-halo", d: path }), make("path", { class: "step", id: "ladder-path", d: path }),
      ...this.result.steps.map((s) => make("circle", { class: s.forced ? "jump forced" : "jump", cx: middle(s.from)[0], cy: middle(s.to)[1], r: Math.max(4, Math.min(6, cell / 3)), "data-to": s.to, "data-from": s.from })));
    this.host.dataset.levels = JSON.stringify(this.result.levels.map((i) => landscape.levels[i]));
    byId("tau-value").textContent = this.tau.toFixed(3);
    markTau(this.tau);
    this.describe();
  }

  describe() {
    const { levels, steps } = this.result;
    const landscape = this.search.landscape;
    const name = this.taken && this.taken.name ? `${this.taken.name[0].toUpperCase()}${this.taken.name.slice(1)}: ` : "";
    byId("ladder-title").textContent = `${name}${plural(levels.length, "level")}, ${plural(levels.length, "network call")} per frame`;
    const beyond = this.taken ? " above τ" : " forced";
    const rows = [...steps].reverse().map((s, i) => make("tr", { class: s.forced ? "forced" : null },
      make("td", {}, String(i + 1)), make("td", {}, show(landscape.levels[s.from], 4)), make("td", {}, show(landscape.levels[s.to], 4)),
      make("td", {}, `${show(s.mean, 4)}${s.forced ? beyond : ""}`)));
    byId("ladder-steps").hidden = !rows.length;
    byId("ladder-steps").replaceChildren(make("table", {}, make("thead", {}, make("tr", {},
      ...["jump", "from σ′", "to σ", "bias"].map((t) => make("th", { scope: "col" }, t)))), make("tbody", {}, ...rows)));
    const forced = steps.filter((s) => s.forced).length;
    const searched = this.search.schedule;
    const same = searched && JSON.stringify(searched) === this.host.dataset.levels;
    const many = `${forced} ${this.taken ? "" : "forced "}${forced > 1 ? "steps exceed" : "step exceeds"} τ`;
    byId("ladder-note").textContent = [
      forced ? (this.taken ? `${many}.` : `${many}: no higher level keeps within it, so the next one is taken.`) : "",
      same ? "This is the ladder that the study trained." : "The study trained another ladder; press “As searched” to see it.",
    ].filter(Boolean).join(" ");
  }

  /** Mark the cell of a jump and tell its bias; null unmarks it. */
  pick(to, from) {
    const { n, x, y } = this.geometry();
    const box = this.canvas.querySelector(".picked");
    if (to === null || n < 2) {
      this.picked = null;
      box.setAttribute("visibility", "hidden");
      byId("cell").textContent = n < 2 ? "" : "Point at a cell, or focus the map and use the arrow keys, to read its jump.";
      return;
    }
    const low = Math.min(n - 2, Math.max(0, to));
    const high = Math.min(n - 1, Math.max(low + 1, from));
    this.picked = [low, high];
    box.setAttribute("x", x(high)); box.setAttribute("y", y(low)); box.setAttribute("visibility", "visible");
    const levels = this.search.landscape.levels;
    const found = this.bias(low, high);
    byId("cell").textContent = `Jump from σ′ = ${show(levels[high], 4)} to σ = ${show(levels[low], 4)}\nbias ${show(found.mean, 4)} ± ${show(found.stderr, 2)}, ${found.mean <= this.tau ? "within" : "above"} τ = ${this.tau.toFixed(3)}`;
  }

  choose(index) {
    this.search = this.searches[index];
    this.bias = biasTable(this.search.landscape);
    byId("tau").max = String(Math.max(1.5, Math.ceil((this.search.landscape.tau + 0.1) * 10) / 10));
    this.drawMap();
    this.reset();
    for (const told of this.onchoose) told(this.search);
  }

  /** Show a ladder of these levels, as far as the map has them. */
  take(sigma, name = "") {
    const levels = sigma.map((s) => this.search.landscape.levels.indexOf(s));
    this.taken = levels.includes(-1) ? null : { levels, name };
    this.drawLadder();
  }

  /** Back to the ladder as it was searched. */
  reset() {
    this.tau = this.search.landscape.tau;
    byId("tau").value = String(this.tau);
    byId("start-rule").value = this.search.landscape.start;
    this.taken = null;
    if (this.search.growth && this.search.schedule) this.take(this.search.schedule); // chosen with what the map does not show
    else this.drawLadder();
    this.pick(null);
  }

  listen() {
    const { canvas, host } = this;
    canvas.addEventListener("pointermove", (event) => {
      const { to, from } = event.target.dataset;
      if (to !== undefined) this.pick(Number(to), Number(from));
    });
    canvas.addEventListener("focus", () => { if (!this.picked) { const s = this.result.steps[0]; this.pick(s ? s.to : 0, s ? s.from : 1); } });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key];
      if (!move || !this.picked) return;
      event.preventDefault();
      const [to, from] = this.picked;
      if (to + move[0] < from + move[1]) this.pick(to + move[0], from + move[1]);
    });
    byId("search-select").addEventListener("change", (event) => this.choose(Number(event.target.value)));
    byId("tau").addEventListener("input", (event) => { this.tau = Number(event.target.value); this.taken = null; this.drawLadder(); if (this.picked) this.pick(...this.picked); });
    byId("start-rule").addEventListener("change", () => { this.taken = null; this.drawLadder(); });
    byId("tau-reset").addEventListener("click", () => this.reset());
    let width = host.clientWidth;
    new ResizeObserver(() => {
      if (Math.abs(host.clientWidth - width) < 2) return;
      width = host.clientWidth;
      this.drawMap();
      this.drawLadder();
      this.pick(...(this.picked ?? [null]));
    }).observe(host);
  }
}

function startLadder() {
  const searches = STUDY.searches.filter((s) => s.landscape);
  if (!searches.length) { byId("ladder").querySelector(".card").hidden = true; drop(byId("front")); drop(byId("growth")); return; }
  options(byId("search-select"), searches.map((s, i) => [i, s.name]), 0);
  const map = new LadderMap(byId("heatmap"), searches);
  drawColourbar();
  const front = new FrontPanel((levels, name) => map.take(levels, name));
  const growth = new GrowthMap(byId("growth-map"));
  map.onchoose.push((search) => front.choose(search), (search) => growth.choose(search));
  map.choose(0);
  map.listen();
}

const BAR = 300; // width of the colour bar
const barAt = (excess) => 6 + (BAR - 12) * Math.log(excess / EXCESS[0]) / Math.log(EXCESS[1] / EXCESS[0]);

/** Where τ lies on the scale of colours, within its ends. */
function markTau(tau) {
  const x = barAt(Math.min(EXCESS[1], Math.max(EXCESS[0], tau - 1)));
  const near = x < 40 ? "start" : x > BAR - 40 ? "end" : "middle";
  byId("colourbar-tau").replaceChildren(make("line", { class: "border-halo", x1: x, y1: 16, x2: x, y2: 30 }),
    make("line", { class: "border-tau", x1: x, y1: 16, x2: x, y2: 30 }), make("text", { x, y: 11, "text-anchor": near }, `τ = ${tau.toFixed(3)}`));
}

function drawColourbar() {
  const width = BAR, steps = 60, at = barAt;
  const bars = Array.from({ length: steps }, (_, i) => {
    const excess = EXCESS[0] * (EXCESS[1] / EXCESS[0]) ** ((i + 0.5) / steps);
    return make("rect", { x: 6 + (i * (width - 12)) / steps, y: 17, width: (width - 12) / steps + 0.5, height: 12, fill: biasColour(1 + excess) });
  });
  const ticks = [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3].map((e) => make("text", { x: at(e), y: 43, "text-anchor": e === 0.003 ? "start" : e === 3 ? "end" : "middle" }, `${1 + e}`));
  byId("colourbar").replaceChildren(make("svg", { viewBox: `0 0 ${width} 47`, role: "img", "aria-label": "Colours of the bias, from 1.003 (light) to 4 (dark)" }, ...bars, ...ticks, make("g", { id: "colourbar-tau" })));
}

/** Own bias of the open levels after some rounds of the exploration. */
function startExploration() {
  const searches = STUDY.searches.filter((s) => s.rounds.length);
  const host = byId("exploration");
  if (!searches.length) { drop(host); return; }
  const select = make("select", {});
  const place = make("div", {});
  host.replaceChildren(make("div", { class: "controls" }, make("label", { class: "field" }, "Search", select)), place);
  options(select, searches.map((s, i) => [i, `${s.name}: ${s.solved} of ${s.levels} levels stable`]), 0);
  const spec = () => {
    const search = searches[Number(select.value) || 0];
    const pick = Math.min(6, search.rounds.length);
    const rounds = Array.from({ length: pick }, (_, i) => search.rounds[Math.round((i * (search.rounds.length - 1)) / Math.max(1, pick - 1))]);
    return {
      label: "Own-prediction bias against noise level, one line per round",
      x: { label: "noise level σ", short: "σ =", log: true }, y: { label: "own-prediction bias", log: true },
      rules: search.tau_explore ? [{ y: search.tau_explore, name: `stable at ${search.tau_explore}` }] : [],
      series: rounds.map((r, i) => ({ name: `${whole(r.update)} updates`, style: i % 8, x: r.sigma, y: r.own })),
    };
  };
  const redraw = chart(place, spec());
  select.addEventListener("change", () => redraw(spec()));
}
