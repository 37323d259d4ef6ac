// How a ladder grew inside its training: levels that were tried, that joined, and their errors.

class GrowthMap {
  constructor(host) {
    Object.assign(this, { host, search: null, picked: null, errors: null });
    this.canvas = make("svg", { tabindex: 0, role: "application", "aria-label": "How the ladder grew", "aria-roledescription": "growth of a ladder", "aria-describedby": "growth-cell" });
    host.replaceChildren(this.canvas);
    this.listen();
  }

  choose(search) {
    this.search = search;
    toggle(byId("growth"), Boolean(search.growth));
    if (!search.growth) return;
    const { growth } = search;
    const bound = { mean: "mean biases", pooled: "pooled biases", q95: "95th percentiles of the biases" }[growth.statistic] ?? growth.statistic;
    const limits = growth.tau === growth.tau_own ? `τ = ${growth.tau}` : `τ = ${growth.tau} (own-prediction bias: ${growth.tau_own})`;
    byId("growth-facts").textContent = [`Bounded are the ${bound}, ${limits}.`, growth.top_error === null ? "" : `After the warm phase the top had an RMS error of ${show(growth.top_error)}.`,
      growth.c === null ? "" : `The denoiser's scale is c = ${show(growth.c)}.`].filter(Boolean).join(" ");
    this.draw();
    this.pick(null);
    const spec = this.errorSpec();
    if (this.errors) this.errors(spec); else this.errors = chart(byId("growth-errors"), spec);
  }

  errorSpec() {
    return {
      label: "Clean-input error of each level against updates", x: { label: "updates", short: "update" }, y: { label: "clean-input error", log: true }, height: 260,
      series: this.search.growth.errors.map((e, i) => ({ name: `σ = ${show(e.sigma, 4)}`, style: i, x: e.update, y: e.error, low: e.low, high: e.high })),
    };
  }

  geometry() {
    const { growth } = this.search;
    const width = Math.max(260, this.host.clientWidth || 640);
    const levels = [...new Set([...growth.rungs.map(([s]) => s), ...growth.cells.map((c) => c.sigma)])].sort((a, b) => b - a);
    const height = Math.min(560, Math.max(170, 90 + 26 * levels.length));
    const x = scale([0, growth.updates], false, MARGIN.left, width - MARGIN.right - 8);
    const [top, row] = [MARGIN.top + 30, (height - MARGIN.bottom - MARGIN.top - 46) / Math.max(1, levels.length - 1)];
    const y = { at: (sigma) => top + row * levels.indexOf(sigma), ticks: () => levels.filter((_, i) => i % Math.ceil(15 / row) === 0) };
    const rounds = [...new Set(growth.cells.map((c) => c.update))];
    const gaps = rounds.slice(1).map((u, i) => x.at(u) - x.at(rounds[i]));
    return { width, height, x, y, wide: Math.max(6, Math.min(26, 0.85 * Math.min(...gaps, 40))), high: Math.max(6, Math.min(18, 0.75 * row)) };
  }

  draw() {
    const { growth, name } = this.search;
    const drawn = this.geometry();
    const { width, height, x, y, wide, high } = drawn;
    const bottom = height - MARGIN.bottom;
    const spec = { x: { label: "updates" }, y: { label: "noise level σ", show: level } };
    const rungs = growth.rungs.flatMap(([sigma, from, used]) => {
      const at = y.at(sigma);
      return [make("path", { class: "rung", d: `M${x.at(from)},${at}H${x.at(growth.updates)}`, "data-sigma": sigma }),
        make("circle", { class: used ? "jump" : "jump forced", cx: x.at(growth.updates), cy: at, r: 5 })];
    });
    const cells = growth.cells.map((c, i) => {
      const left = x.at(c.update) - wide / 2, top = y.at(c.sigma) - high / 2;
      const half = (bias, shift) => make("rect", { x: left + shift, y: top, width: wide / 2, height: high, fill: biasColour(bias.mean ?? Infinity), "data-cell": i });
      return make("g", {}, half(c.own, 0), half(c.two_step, wide / 2), make("rect", { class: c.feasible ? "tried feasible" : "tried", "stroke-width": c.feasible ? Math.min(2.4, wide / 5) : 1, x: left, y: top, width: wide, height: high, "data-cell": i }));
    });
    const note = (update, text, anchor) => make("text", { x: x.at(update) + (anchor === "start" ? 5 : -5), y: MARGIN.top + 10, "text-anchor": anchor }, text);
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.setAttribute("aria-label", `Levels of ${name} against updates: ${growth.cells.length} measurements, ${growth.rungs.length} levels in the grown ladder. Arrow keys move from measurement to measurement.`);
    this.canvas.replaceChildren(
      make("rect", { class: "warm", x: x.at(0), y: MARGIN.top, width: x.at(growth.warm) - x.at(0), height: bottom - MARGIN.top }),
      ...axisParts(spec, drawn), make("line", { class: "rule", x1: x.at(growth.fixed), x2: x.at(growth.fixed), y1: MARGIN.top, y2: bottom }),
      note(0, width < 480 ? "warm" : "warm phase", "start"), note(growth.fixed, width < 480 ? "fixed" : "ladder fixed", "start"),
      ...rungs, ...cells, make("rect", { class: "picked", visibility: "hidden", width: wide + 4, height: high + 4 }));
  }

  pick(index) {
    const box = this.canvas.querySelector(".picked");
    this.picked = index;
    if (index === null) {
      box?.setAttribute("visibility", "hidden");
      byId("growth-cell").textContent = "Point at a box, or focus the chart and use the arrow keys, to read what was measured.";
      return;
    }
    const { x, y, wide, high } = this.geometry();
    const c = this.search.growth.cells[index];
    box.setAttribute("x", x.at(c.update) - wide / 2 - 2); box.setAttribute("y", y.at(c.sigma) - high / 2 - 2); box.setAttribute("visibility", "visible");
    const outcome = c.joined ? "It joined the ladder." : c.feasible ? "It was feasible, but another level promised more." : "It was not feasible.";
    byId("growth-cell").textContent = [`Update ${whole(c.update)}, σ = ${show(c.sigma, 4)}: error ${show(c.clean)} ± ${show(c.clean_stderr, 2)}. ${outcome}`,
      `own bias ${show(c.own.mean, 4)}${statistics(c.own)}`, `two-step bias ${show(c.two_step.mean, 4)}${statistics(c.two_step)}`].join("\n");
  }

  /** The measurement nearest to another round or another level. */
  move(rounds, levels) {
    const { cells } = this.search.growth;
    if (!cells.length) return;
    if (this.picked === null) { this.pick(0); return; }
    const now = cells[this.picked];
    const far = rounds
      ? cells.filter((c) => Math.sign(c.update - now.update) === rounds)
      : cells.filter((c) => c.update === now.update && Math.sign(c.sigma - now.sigma) === levels);
    const cost = (c) => (rounds ? 1e6 * Math.abs(c.update - now.update) : 0) + Math.abs(Math.log(c.sigma / now.sigma));
    const best = far.reduce((a, b) => (a === null || cost(b) < cost(a) ? b : a), null);
    if (best) this.pick(cells.indexOf(best));
  }

  listen() {
    const { canvas, host } = this;
    const point = (event) => { if (event.target.dataset.cell !== undefined) this.pick(Number(event.target.dataset.cell)); };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("click", point);
    canvas.addEventListener("focus", () => { if (this.picked === null) this.move(1, 0); });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!move) return;
      event.preventDefault();
      this.move(...move);
    });
    let width = host.clientWidth;
    new ResizeObserver(() => {
      if (Math.abs(host.clientWidth - width) < 2 || !this.search?.growth) return;
      width = host.clientWidth;
      this.draw();
      this.pick(this.picked);
    }).observe(host);
  }
}
