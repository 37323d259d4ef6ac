// The two-step-bias map with the ladder drawn over it, and the slider that redraws it.

const EXCESS = [0.003, 3]; // colours span biases from 1.003 to 4, logarithmically in bias − 1

/** The colour of a bias: light is harmless, dark is harmful, in grey print too. */
function biasColour(mean) {
  const share = Math.log(Math.max(mean - 1, EXCESS[0]) / EXCESS[0]) / Math.log(EXCESS[1] / EXCESS[0]);
  return css(between(CIVIDIS, 1 - share));
}

function startLadder() {
  const searches = STUDY.searches.filter((s) => s.landscape);
  if (!searches.length) { byId("ladder").querySelector(".card").hidden = true; return; }
  const state = { search: null, bias: null, picked: null, tau: 1.05, result: null };
  const host = byId("heatmap");
  const canvas = make("svg", { tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-describedby": "cell" });
  host.replaceChildren(canvas);
  const left = 68, bottom = 46, top = 8;
  let size = 480;
  const geometry = () => {
    const n = state.search.landscape.levels.length;
    const cell = (size - left - top) / n; // rows fit too: `bottom` is less than `left`
    return { n, cell, x: (i) => left + i * cell, y: (i) => size - bottom - (i + 1) * cell };
  };

  function drawMap() {
    size = Math.min(640, Math.max(270, host.clientWidth || 480));
    const { n, cell, x, y } = geometry();
    const levels = state.search.landscape.levels;
    canvas.setAttribute("viewBox", `0 0 ${size} ${size}`);
    canvas.setAttribute("aria-label", `Two-step bias of every jump between ${n} noise levels of ${state.search.name}. Arrow keys move from cell to cell.`);
    const cells = [];
    for (let to = 0; to < n; to += 1) {
      for (let from = to + 1; from < n; from += 1) {
        cells.push(make("rect", { class: "cell", x: x(from), y: y(to), width: cell + 0.4, height: cell + 0.4, fill: biasColour(state.bias(to, from).mean), "data-to": to, "data-from": from }));
      }
    }
    const ticks = [];
    const every = Math.max(1, Math.ceil(34 / cell));
    for (let i = 0; i < n; i += every) {
      ticks.push(make("text", { x: x(i) + cell / 2, y: size - bottom + 15, "text-anchor": "middle" }, level(levels[i])));
      ticks.push(make("text", { x: left - 6, y: y(i) + cell / 2 + 4, "text-anchor": "end" }, level(levels[i])));
    }
    canvas.replaceChildren(
      make("line", { class: "diagonal", x1: x(0), y1: y(-1), x2: x(n), y2: y(n - 1) }), ...cells, ...ticks,
      make("text", { class: "axis-title", x: (left + size) / 2, y: size - bottom + 34, "text-anchor": "middle" }, "jump from level σ′"),
      make("text", { class: "axis-title", x: -(size - bottom) / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle" }, "down to level σ"),
      make("g", { id: "overlay" }), make("rect", { class: "picked", visibility: "hidden", width: cell, height: cell }));
  }

  function borderPath() {
    const { n, cell, x, y } = geometry();
    const within = (to, from) => (to >= 0 && to < from && from < n ? state.bias(to, from).mean <= state.tau : null);
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

  function drawLadder() {
    const { cell, x, y } = geometry();
    const landscape = state.search.landscape;
    const start = startLevel(landscape, byId("start-rule").value);
    state.result = greedySchedule(landscape.levels.length, state.bias, state.tau, start);
    const middle = (i) => [x(i) + cell / 2, y(i) + cell / 2];
    let path = `M${middle(start)}`;
    for (const s of state.result.steps) path += `H${middle(s.from)[0]}V${middle(s.from)[1]}`;
    const border = borderPath();
    canvas.querySelector("#overlay").replaceChildren(
      make("path", { class: "border-halo", d: border }), make("path", { class: "border-tau", d: border }),
      make("path", { class: "step-halo", d: path }), make("path", { class: "step", id: "ladder-path", d: path }),
      ...state.result.steps.map((s) => make("circle", { class: s.forced ? "jump forced" : "jump", cx: middle(s.from)[0], cy: middle(s.to)[1], r: Math.max(4, Math.min(6, cell / 3)), "data-to": s.to, "data-from": s.from })));
    host.dataset.levels = JSON.stringify(state.result.levels.map((i) => landscape.levels[i]));
    byId("tau-value").textContent = state.tau.toFixed(3);
    describe();
  }

  function describe() {
    const { levels, steps } = state.result;
    const landscape = state.search.landscape;
    byId("ladder-title").textContent = `${levels.length} levels: ${levels.length} network calls a frame`;
    const rows = [...steps].reverse().map((s, i) => make("tr", { class: s.forced ? "forced" : null },
      make("td", {}, String(i + 1)), make("td", {}, show(landscape.levels[s.from], 4)), make("td", {}, show(landscape.levels[s.to], 4)),
      make("td", {}, `${show(s.mean, 4)}${s.forced ? " forced" : ""}`)));
    byId("ladder-steps").replaceChildren(make("table", {}, make("thead", {}, make("tr", {},
      ...["jump", "from σ′", "to σ", "bias"].map((t) => make("th", { scope: "col" }, t)))), make("tbody", {}, ...rows)));
    const forced = steps.filter((s) => s.forced).length;
    const searched = state.search.schedule;
    const same = searched && JSON.stringify(searched) === host.dataset.levels;
    byId("ladder-note").textContent = [
      forced ? `${forced} forced ${forced > 1 ? "steps exceed" : "step exceeds"} τ: no level above keeps within it, so the next one was taken.` : "",
      same ? "This is the ladder that the study trained." : "The study trained another ladder; press “As searched” to see it.",
    ].filter(Boolean).join(" ");
  }

  function pick(to, from) {
    const { n, x, y } = geometry();
    const box = canvas.querySelector(".picked");
    if (to === null) { state.picked = null; box.setAttribute("visibility", "hidden"); byId("cell").textContent = "Point at a cell, or focus the map and use the arrow keys, to read its jump."; return; }
    const low = Math.min(n - 2, Math.max(0, to));
    const high = Math.min(n - 1, Math.max(low + 1, from));
    state.picked = [low, high];
    box.setAttribute("x", x(high)); box.setAttribute("y", y(low)); box.setAttribute("visibility", "visible");
    const levels = state.search.landscape.levels;
    const found = state.bias(low, high);
    byId("cell").textContent = `Jump from σ′ = ${show(levels[high], 4)} to σ = ${show(levels[low], 4)}\nbias ${show(found.mean, 4)} ± ${show(found.stderr, 2)}, ${found.mean <= state.tau ? "within" : "above"} τ = ${state.tau.toFixed(3)}`;
  }

  canvas.addEventListener("pointermove", (event) => {
    const { to, from } = event.target.dataset;
    if (to !== undefined) pick(Number(to), Number(from));
  });
  canvas.addEventListener("focus", () => { if (!state.picked) { const s = state.result.steps[0]; pick(s ? s.to : 0, s ? s.from : 1); } });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key];
    if (!move || !state.picked) return;
    event.preventDefault();
    const [to, from] = state.picked;
    if (to + move[0] < from + move[1]) pick(to + move[0], from + move[1]);
  });

  function choose(index) {
    state.search = searches[index];
    state.bias = biasTable(state.search.landscape);
    const slider = byId("tau");
    slider.max = String(Math.max(1.5, Math.ceil((state.search.landscape.tau + 0.1) * 10) / 10));
    drawMap();
    reset();
  }
  function reset() {
    state.tau = state.search.landscape.tau;
    byId("tau").value = String(state.tau);
    byId("start-rule").value = state.search.landscape.start;
    drawLadder();
    pick(null);
  }
  options(byId("search-select"), searches.map((s, i) => [i, s.name]), 0);
  byId("search-select").addEventListener("change", (event) => choose(Number(event.target.value)));
  byId("tau").addEventListener("input", (event) => { state.tau = Number(event.target.value); drawLadder(); if (state.picked) pick(...state.picked); });
  byId("start-rule").addEventListener("change", drawLadder);
  byId("tau-reset").addEventListener("click", reset);
  drawColourbar();
  choose(0);
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(host.clientWidth - width) < 2) return;
    width = host.clientWidth;
    drawMap();
    drawLadder();
    pick(...(state.picked ?? [null]));
  }).observe(host);
}

function drawColourbar() {
  const width = 300, steps = 60;
  const at = (excess) => 6 + (width - 12) * Math.log(excess / EXCESS[0]) / Math.log(EXCESS[1] / EXCESS[0]);
  const bars = Array.from({ length: steps }, (_, i) => {
    const excess = EXCESS[0] * (EXCESS[1] / EXCESS[0]) ** ((i + 0.5) / steps);
    return make("rect", { x: 6 + (i * (width - 12)) / steps, y: 0, width: (width - 12) / steps + 0.5, height: 12, fill: biasColour(1 + excess) });
  });
  const ticks = [0.003, 0.01, 0.03, 0.1, 0.3, 1, 3].map((e) => make("text", { x: at(e), y: 26, "text-anchor": e === 0.003 ? "start" : e === 3 ? "end" : "middle" }, `${1 + e}`));
  byId("colourbar").replaceChildren(make("svg", { viewBox: `0 0 ${width} 30`, role: "img", "aria-label": "Colours of the bias, from 1.003 (light) to 4 (dark)" }, ...bars, ...ticks));
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
