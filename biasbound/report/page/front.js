// The exact front: error against calls, and a click that takes a ladder.

const statistics = (bias) => (bias.pooled === null && bias.q95 === null ? "" : ` (pooled ${show(bias.pooled, 4)}, 95th percentile ${show(bias.q95, 4)})`);

/** A ladder as the file that biasbound reads as a schedule. */
function scheduleFile(search, point) {
  const meta = { method: "front", calls: point.calls, of: search.name };
  if (point.mean !== null) meta.error = point.mean;
  if (point.stderr !== null) meta.stderr = point.stderr;
  return `${JSON.stringify({ format: "biasbound.schedule", version: 1, sigma: point.sigma, meta }, null, 1)}\n`;
}

const sameLevels = (a, b) => a !== null && b !== null && JSON.stringify(a) === JSON.stringify(b);

class FrontPanel {
  /** `take(levels, name)` shows a ladder on the map. */
  constructor(take) {
    Object.assign(this, { take, search: null, point: null, redraw: null });
    byId("front-copy").addEventListener("click", () => this.copy());
    byId("front-save").addEventListener("click", () => this.save());
  }

  choose(search) {
    this.search = search;
    const { points, chosen } = search.front ?? { points: [] };
    toggle(byId("front"), points.length > 1); // one point is no curve
    if (points.length < 2) return;
    this.tell(points.find((p) => sameLevels(p.sigma, chosen?.sigma ?? null)) ?? points[points.length - 1]);
    if (this.redraw) this.redraw(this.spec()); else this.redraw = chart(byId("front-chart"), this.spec());
  }

  /** What the ladders were compared by. */
  get score() { return this.search.front.score === "crps" ? "CRPS" : "error"; }

  spec() {
    const { points, chosen, greedy } = this.search.front;
    const shift = (sign) => points.map((p) => (p.mean === null ? null : p.mean + sign * (p.stderr ?? 0)));
    const [low, high] = [shift(-1), shift(1)];
    const log = Math.min(...positive(low)) * 4 < Math.max(...finite(high)) && finite(low).every((v) => v > 0);
    const ring = (name, point, ringed) => (point && point.mean !== null ? [{ name, x: [point.calls], y: [point.mean], ring: ringed, style: ringed.style }] : []);
    return {
      label: `Least ${this.score} against network calls of ${this.search.name}. Enter or a click takes the ladder at the cursor`,
      x: { label: "network calls per frame", short: "calls", whole: true }, y: { label: this.score === "CRPS" ? "CRPS (validation)" : "inference error (validation)", log }, height: 280,
      series: [
        { name: "best ladder", style: 0, x: points.map((p) => p.calls), y: points.map((p) => p.mean), low, high, bars: true },
        ...ring("the study's ladder", chosen, { style: "ladder", r: 8 }), ...ring("greedy ladder", greedy, { style: "ink", r: 11, square: true }),
        ...ring("shown on the map", this.point, { style: "accent", r: 14 }),
      ],
      pick: (calls) => {
        this.tell(points.find((p) => p.calls === calls));
        this.take(this.point.sigma, `the best ladder with ${plural(calls, "call")}`);
        return this.spec();
      },
    };
  }

  /** Text and file of a point of the front. */
  tell(point) {
    this.point = point;
    const { chosen, greedy } = this.search.front;
    const also = [sameLevels(point.sigma, chosen?.sigma ?? null) ? "the study's ladder" : "", sameLevels(point.sigma, greedy?.sigma ?? null) ? "the greedy ladder" : ""].filter(Boolean);
    const apart = greedy && greedy.mean === null ? `\nThe greedy ladder (${plural(greedy.calls, "call")}) is not on the front, and its ${this.score} was not measured.` : "";
    byId("front-readout").textContent = `${plural(point.calls, "call")}: ${this.score} ${show(point.mean)} ± ${show(point.stderr, 2)}${also.length ? `, ${also.join(" and ")}` : ""}\nσ: ${point.sigma.map((s) => show(s, 4)).join(", ")}${apart}`;
    byId("front-json").value = scheduleFile(this.search, point);
    byId("front-done").textContent = "";
  }

  /** By the old command: a page that was opened from a file need not have the clipboard's new interface. */
  copy() {
    byId("front-json").select();
    byId("front-done").textContent = document.execCommand("copy") ? "Copied." : "Marked: press Ctrl+C to copy it.";
  }

  save() {
    const name = `${this.search.label.replace(/[^\w.-]+/g, "_")}-${this.point.calls}.json`;
    const href = URL.createObjectURL(new Blob([byId("front-json").value], { type: "application/json" }));
    const link = make("a", { href, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
    byId("front-done").textContent = `${name} is in your downloads.`;
  }
}
