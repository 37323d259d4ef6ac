// The study, small tools for the document, and how numbers are written.

const STUDY = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

/** An element with attributes, listeners (on…: function) and children; strings become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "rect", "line", "circle", "text", "title", "polygon"].includes(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Fill a <select> with [value, text] pairs. */
function options(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, text]) =>
    make("option", { value, selected: String(value) === String(chosen) }, text)));
}

const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const superscript = (n) => (n < 0 ? "⁻" : "") + [...String(Math.abs(n))].map((d) => SUPERSCRIPT[d]).join("");

function power(value, digits = 3) {
  const [head, tail] = value.toExponential(digits - 1).split("e");
  return `${head.replace("-", "−")}·10${superscript(Number(tail))}`;
}

/** A number for reading: three digits, powers of ten where decimals would be long. */
function show(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size > 0 && (size >= 1e5 || size < 1e-3)) return power(value, digits);
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

/** Numbers like 1.24e-7 in a text, as the charts write them. */
const pretty = (text) => text.replace(/\b(\d(?:\.(\d+))?)e(-?\d+)\b/g, (_, head, decimals = "", tail) => {
  const power = Number(tail);
  if (power > 3 || power < -2) return `${head}·10${superscript(power)}`;
  return (Number(head) * 10 ** power).toFixed(Math.max(0, decimals.length - power));
});

/** A number of an axis: as short as it can be. */
function tick(value, digits = 3) {
  const text = show(value, digits);
  return text.includes("·") ? text.replace(/\.?0*·/, "·").replace(/^1·/, "") : text;
}

/** A noise level: levels near 1 differ only in late digits. */
const level = (sigma) => show(sigma, sigma > 0.95 ? 4 : 2);

const whole = (n) => (n === null || n === undefined ? "–" : n.toLocaleString("en"));

const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return `${show(seconds)} s`;
  return seconds < 5400 ? `${show(seconds / 60)} min` : `${show(seconds / 3600)} h`;
}

/** The place of a method in the order of the results sets its colour, dash and marker everywhere. */
const styleOf = (label) => (label === "truth" ? "truth" : Math.max(0, STUDY.methods.indexOf(label)));

/** Light, dark, or what the system says. */
function startTheme(button) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const modes = ["auto", "light", "dark"];
  let mode = 0;
  const apply = () => {
    const dark = modes[mode] === "dark" || (modes[mode] === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = `Theme: ${modes[mode]}`;
  };
  button.addEventListener("click", () => { mode = (mode + 1) % modes.length; apply(); });
  system.addEventListener("change", apply);
  window.addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; }); // paper is white
  window.addEventListener("afterprint", apply);
  apply();
}

/** Show or hide a part, with the caption that explains it. */
function toggle(element, shown) {
  element.hidden = !shown;
  const next = element.nextElementSibling;
  if (next && next.classList.contains("caption")) next.hidden = !shown;
}

/** Hide what the run has no data for. */
const drop = (element) => toggle(element, false);
