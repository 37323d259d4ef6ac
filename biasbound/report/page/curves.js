// Biases and errors along the chain, gradients, errors over time, spectra, training.

const KINDS = { reb: "REB (inference)", two_step: "two-step bias", own: "own-prediction bias" };
const SIGMA_AXIS = { label: "noise level σ  (sampled right to left)", short: "σ =", log: true };

function withErrors(bias, kind) {
  const error = bias[`${kind}_stderr`];
  const shift = (sign) => bias[kind].map((v, i) => (v === null || error[i] === null ? null : v + sign * error[i]));
  return { x: bias.sigma, y: bias[kind], low: shift(-1), high: shift(1), more: (i) => statistics(statisticsOf(bias, kind, i)) };
}

const statisticsOf = (bias, kind, i) => ({ mean: bias[kind][i], stderr: bias[`${kind}_stderr`][i], pooled: bias[`${kind}_pooled`][i], q95: bias[`${kind}_q95`][i] });

/** Every statistic of one method's biases, or of the largest bias along each method's chain. */
function biasRows(models, what, which) {
  const row = (m, kind, i, name) => ({ name, sigma: m.bias.sigma[i], ...statisticsOf(m.bias, kind, i) });
  if (what === "model") {
    const m = models[Number(which)];
    return Object.entries(KINDS).flatMap(([kind, name]) => m.bias.sigma.map((_, i) => row(m, kind, i, name)).filter((r) => r.mean !== null).reverse());
  }
  return models.flatMap((m) => {
    const known = m.bias[which].map((v, i) => [v, i]).filter(([v]) => v !== null);
    return known.length ? [row(m, which, known.reduce((a, b) => (b[0] > a[0] ? b : a))[1], m.name)] : [];
  });
}

function biasTableOf(rows, what) {
  const heads = [what === "kind" ? "largest along the chain of" : "bias", "at σ", "mean of ratios", "pooled ratio", "95th percentile"];
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((t, i) => make("th", { scope: "col", class: i ? null : "words" }, t)))),
    make("tbody", {}, ...rows.map((r) => make("tr", {}, make("th", { scope: "row", class: "words" }, r.name),
      ...[show(r.sigma, 4), `${show(r.mean, 4)} ± ${show(r.stderr, 2)}`, show(r.pooled, 4), show(r.q95, 4)].map((t) => make("td", {}, t))))));
}

function startBiases() {
  const models = STUDY.models.filter((m) => m.bias);
  if (!models.length) { byId("bias-select").closest(".card").hidden = true; return; }
  const select = byId("bias-select");
  select.replaceChildren(
    make("optgroup", { label: "all methods" }, ...Object.entries(KINDS).map(([k, name]) => make("option", { value: `kind:${k}` }, `${name} of every method`))),
    make("optgroup", { label: "one method" }, ...models.map((m, i) => make("option", { value: `model:${i}` }, `all biases of ${m.name}`))));
  const spec = () => {
    const [what, which] = select.value.split(":");
    const series = what === "kind"
      ? models.map((m) => ({ name: m.label, said: m.name, style: styleOf(m.label), ...withErrors(m.bias, which) }))
      : Object.entries(KINDS).map(([k, name], i) => ({ name, style: i, ...withErrors(models[Number(which)].bias, k) }));
    return {
      label: "Biases against noise level", x: SIGMA_AXIS, series, rules: [{ y: 1, name: "no bias" }],
      y: { label: what === "kind" ? KINDS[which] : "error over clean-input error", log: true },
    };
  };
  const table = () => byId("bias-table").replaceChildren(biasTableOf(biasRows(models, ...select.value.split(":")), select.value.split(":")[0]));
  const redraw = chart(byId("bias-chart"), spec());
  table();
  select.addEventListener("change", () => { redraw(spec()); table(); });
}

function startChain() {
  const models = STUDY.models.filter((m) => m.chain.length);
  if (!models.length) { byId("chain-card").hidden = true; return; }
  const select = byId("chain-select"), slider = byId("chain-time");
  options(select, models.map((m, i) => [i, m.name]), 0);
  const chosen = () => models[Number(select.value)];
  const spec = () => {
    const time = chosen().chain[Number(slider.value)];
    byId("chain-update").textContent = `${whole(time.update)} updates`;
    return {
      label: "Clean-input and inference-input error against noise level", x: SIGMA_AXIS, y: { label: "error", log: true },
      series: [
        { name: "inference input", style: 1, x: time.sigma, y: time.inference },
        { name: "clean input", style: 0, x: time.sigma, y: time.clean },
      ],
    };
  };
  const latest = () => { slider.max = String(chosen().chain.length - 1); slider.value = slider.max; };
  latest();
  const redraw = chart(byId("chain-chart"), spec());
  select.addEventListener("change", () => { latest(); redraw(spec()); });
  slider.addEventListener("input", () => redraw(spec()));
}

function startGradients() {
  const models = STUDY.models.filter((m) => m.gradients.length);
  if (!models.length) { drop(byId("gradient-chart")); return; }
  chart(byId("gradient-chart"), {
    label: "Cosine of gradients against the proxy's transitions", x: { label: "transitions n of the proxy", short: "n =", whole: true },
    y: { label: "cosine with full unrolling" }, rules: [{ y: 1, name: "the same direction" }],
    series: models.map((m) => {
      const rows = m.gradients.filter((r) => typeof r.n === "number");
      const shift = (sign) => rows.map((r) => (r.to_full_stderr === null ? null : r.to_full + sign * r.to_full_stderr));
      return { name: m.label, said: m.name, style: styleOf(m.label), x: rows.map((r) => r.n), y: rows.map((r) => r.to_full), low: shift(-1), high: shift(1) };
    }),
  });
}

/** Charts of a section, each of series over the predicted frames; the section hides where there are none. */
function seriesSection(id, charts) {
  for (const { host, label, shown, ...more } of charts) {
    byId(host).hidden = !shown.length;
    if (shown.length) chart(byId(host), { label: `${label} over the rollout`, x: { label: "predicted frame", short: "frame" }, y: { label, log: true, ...more.y }, rules: more.rules, series: shown });
  }
  byId(id).hidden = charts.every(({ shown }) => !shown.length);
}

/** Seeds of a method go together in the legend. */
const lineOf = (s) => ({ name: s.label, said: s.name, style: styleOf(s.label), x: s.step, y: s.value, low: s.low, high: s.high });

function startSeries() {
  if (STUDY.alone) { byId("time").hidden = byId("ensemble").hidden = true; return; } // one point each, and the table has it
  const { error, fsd, crps, spread_skill: spread } = STUDY.series;
  if (error.every((s) => s.step.length < 2)) { byId("time").hidden = byId("ensemble").hidden = true; return; } // frames that stand alone: the table has it all
  seriesSection("time", [
    { host: "error-chart", label: STUDY.error, shown: error.map(lineOf) },
    { host: "fsd-chart", label: "Fréchet spectral distance", shown: fsd.map(lineOf) },
  ]);
  const drawn = spread.filter((s) => s.value.some((v) => v > 0)); // members of a direct model are equal
  seriesSection("ensemble", [
    { host: "spread-chart", label: "spread over error of the mean", shown: drawn.map(lineOf), rules: [{ y: 1, name: "reliable" }] },
    { host: "crps-chart", label: "CRPS", shown: drawn.length ? crps.map(lineOf) : [] },
  ]);
}

/** Own error and inherited drift, in the colour of the method; and what a method's own states cost it. */
function startSplit() {
  const { split_own: own, split_drift: drift, split_ratio: ratio } = STUDY.series;
  const root = (values) => values.map((v) => (v === null ? null : Math.sqrt(v)));
  const part = (s, name, dash) => ({ ...lineOf(s), said: `${s.name}, ${name}`, dash, y: root(s.value), low: root(s.low), high: root(s.high) });
  seriesSection("split", [
    { host: "split-chart", label: "RMS error / flow's deviation", y: { floor: 1e-4 }, shown: own.flatMap((s, i) => [part(s, "own error", ""), ...(drift[i] ? [part(drift[i], "drift", "2 4")] : [])]) },
    { host: "ratio-chart", label: "own error: own over true state", shown: ratio.map(lineOf), rules: [{ y: 1, name: "no cost" }] },
  ]);
}

function startSpectra() {
  if (!STUDY.spectra.length) { byId("spectra").hidden = true; return; }
  chart(byId("spectra-chart"), {
    label: "Energy spectra at the last frame", x: { label: "wavenumber k (waves per domain)", short: "k =", log: true },
    y: { label: "energy E(k)", log: true, floor: 1e-12 },
    series: STUDY.spectra.map((s) => ({ name: s.name, style: styleOf(s.name), x: s.k, y: s.energy })),
  });
}

function startTraining() {
  const models = STUDY.models.filter((m) => m.log.update.length);
  const select = byId("training-select");
  if (!models.length) { select.closest(".card").hidden = true; return; }
  const keys = [...new Set(models.flatMap((m) => Object.keys(m.log)))].filter((k) => k !== "update");
  keys.sort((a, b) => (b === "loss") - (a === "loss"));
  options(select, keys.map((k) => [k, { loss: "training loss", lr: "learning rate" }[k] ?? k.replaceAll("_", " ")]), "loss");
  const spec = () => ({
    label: "Training curve", x: { label: "updates", short: "update" }, y: { label: select.selectedOptions[0].textContent, log: true },
    series: models.filter((m) => m.log[select.value]).map((m) => ({ name: m.label, said: m.name, style: styleOf(m.label), x: m.log.update, y: m.log[select.value] })),
  });
  const redraw = chart(byId("training-chart"), spec());
  select.addEventListener("change", () => redraw(spec()));
}
