// The headline table, cost, configuration and provenance.

function startHeadline() {
  const table = STUDY.table;
  const host = byId("headline");
  if (!table) { host.replaceChildren(make("p", { class: "note" }, "This run has no results yet.")); return; }
  const label = Object.fromEntries(Object.entries(STUDY.titles).map(([name, title]) => [title, name]));
  const cell = (c, i) => {
    const text = make("span", {}, pretty(c.value));
    if (i >= table.left) return make("td", { class: c.best ? "best" : null }, text, c.rest ? make("small", {}, pretty(c.rest)) : null);
    const name = label[c.value]; // as the charts call it
    return make(i === table.left - 1 ? "th" : "td", { class: "words", scope: i === table.left - 1 ? "row" : null }, text,
      name && name !== c.value ? make("small", {}, name) : null);
  };
  const heads = table.columns.map((text, i) => make("th", { scope: "col", class: i < table.left ? "words" : null }, text));
  const kept = table.groups.length === 1 ? table.left - 1 : 0; // a single dataset need not be named in a column
  host.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads.slice(kept))), ...table.groups.map((group) =>
    make("tbody", {}, ...group.map((line) => make("tr", { class: line.ruled ? "ruled" : null }, ...line.cells.map(cell).slice(kept)))))));
  byId("headline-notes").textContent = table.notes.join(" ");
}

/** The table's 1-step error against network calls, one point per method. */
function startTradeoff() {
  const rows = STUDY.tradeoff;
  if (rows.length < 2) { drop(byId("tradeoff")); return; }
  chart(byId("tradeoff"), {
    label: "1-step error against network calls", x: { label: "network calls per frame (NFE)", short: "NFE", log: true, whole: true },
    y: { label: `1-step ${STUDY.error}`, log: true }, height: 280,
    series: rows.map((r) => ({ name: r.name, text: r.name, style: styleOf(r.method), dots: true, x: [r.nfe], y: [r.mse] })),
  });
}

/** Of a unit 03-train/METHOD/seed-0: stage and seed have columns of their own. */
const methodOf = (unit) => unit.split("/").at(-2) ?? unit;

function startCost() {
  const host = byId("cost");
  const stages = STUDY.stages.filter((s) => s.wall_seconds !== undefined);
  if (!stages.length) { host.hidden = true; return; }
  const counted = stages.some((s) => s.ledger);
  const longest = Math.max(...stages.map((s) => s.wall_seconds ?? 0), 1e-9);
  const bar = (seconds) => make("svg", { class: "barfill", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, make("rect", { width: (100 * (seconds ?? 0)) / longest, height: 8, rx: 1 }));
  host.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...["stage", "of", "seed", "updates", ...(counted ? ["ledger"] : []), "CPU time", "wall time", ""].map((t) => make("th", { scope: "col", class: t === "of" ? "words" : null }, t)))),
    make("tbody", {}, ...stages.map((s) => make("tr", {}, make("td", {}, s.stage), make("td", { class: "words" }, methodOf(s.unit ?? "")), make("td", {}, whole(s.seed)),
      make("td", {}, s.updates ? whole(s.updates) : "–"), counted ? make("td", {}, s.ledger ? whole(s.ledger) : "–") : null, make("td", {}, duration(s.cpu_seconds)), make("td", {}, duration(s.wall_seconds)), make("td", { class: "bar" }, bar(s.wall_seconds)))))));
}

function startProvenance() {
  byId("config").textContent = STUDY.config || "This run has no config.yaml.";
  const facts = Object.entries(STUDY.machine);
  byId("machine").replaceChildren(facts.length ? make("dl", {}, ...facts.flatMap(([k, v]) => [make("dt", {}, k), make("dd", {}, String(v))])) : make("p", { class: "note" }, "This run left no provenance."));
}

/** What was found, in words; its first sentence begins with the name of the best emulator. */
function startAnswer() {
  const why = byId("ladder").hidden ? [] : [" ", make("a", { href: "#ladder" }, "See what the search measured.")];
  const told = STUDY.answers.flatMap((one) => [
    make("p", { class: "verdict" }, make("strong", {}, one.title), one.sentences[0].slice(one.title.length)),
    make("ul", { class: "lede" }, ...one.sentences.slice(1).map((sentence) => make("li", {}, pretty(sentence)))),
    one.reasons.length ? make("p", { class: "lede" }, make("strong", {}, "Why: "), one.reasons.join(" "), ...why) : null,
  ]);
  byId("answer").replaceChildren(...(told.length ? told.filter(Boolean) : [make("p", { class: "lede" }, "No emulator of this run has been scored yet.")]));
}

function startHeader() {
  byId("title").textContent = STUDY.title;
  byId("dataset").textContent = STUDY.dataset;
  byId("version").textContent = STUDY.version ? `biasbound ${STUDY.version}` : "";
  startAnswer();
  const sections = [...document.querySelectorAll("main > section")].filter((s) => !s.hidden);
  byId("nav").replaceChildren(...sections.map((s) => make("li", {}, make("a", { href: `#${s.id}` }, s.dataset.title))));
}
