// The rollout player: the truth, and the predictions and errors of several methods beside it.

function bytes(text) {
  const raw = atob(text);
  const made = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) made[i] = raw.charCodeAt(i);
  return made;
}

/** Values of the truth; NaN at masked points and inside a body. */
function unpackTruth(quantity, trajectory) {
  const packed = bytes(quantity.data[trajectory]);
  const made = new Float32Array(packed.length);
  const unit = (quantity.high - quantity.low) / 254;
  for (let i = 0; i < packed.length; i += 1) made[i] = packed[i] === 255 ? NaN : quantity.low + unit * packed[i];
  return made;
}

/** Values of an error, stored on a signed square-root scale; NaN where the prediction broke down. */
function unpackError(error) {
  const packed = new Int8Array(bytes(error.data).buffer);
  const made = new Float32Array(packed.length);
  const size = packed.length / error.max.length; // of a frame
  for (let i = 0; i < packed.length; i += 1) {
    const share = packed[i] / 127;
    made[i] = packed[i] === -128 ? NaN : error.max[Math.floor(i / size)] * share * Math.abs(share);
  }
  return made;
}

/** Paint values(i), i = first axis · height + second, with the first axis to the right and the second upwards. */
function paint(canvas, width, height, value, [low, high], colours) {
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  for (let x = 0; x < width; x += 1) {
    for (let y = 0; y < height; y += 1) {
      const v = value(x * height + y);
      const at = 4 * ((height - 1 - y) * width + x);
      const c = Number.isNaN(v) ? -1 : 3 * Math.min(255, Math.max(0, Math.round((255 * (v - low)) / (high - low || 1))));
      for (let j = 0; j < 3; j += 1) picture.data[at + j] = c < 0 ? NOTHING[j] : colours[c + j];
      picture.data[at + 3] = 255;
    }
  }
  context.putImageData(picture, 0, 0);
}

const MAPS = { signed: table(RDBU), amount: table(CIVIDIS) };
const FOLLOW = "All start from the same state; the errors are small at first and grow";
const CAPTIONS = {
  flat: `Space against time: position upwards, time to the right. Predictions on the left, their errors on the right. ${FOLLOW} (in brackets: of the flow's standard deviation). Drag in a picture or use the slider to see the profile at one time below.`,
  plane: `The truth, and below each method its prediction and its error at the same time. ${FOLLOW} (in brackets: of the flow's standard deviation). Play, or drag the slider.`,
  volume: `The truth in a plane through the volume, and below each method its prediction and its error at the same time. ${FOLLOW} (in brackets: of the flow's standard deviation). Play, drag the slider, or choose another plane.`,
};
const chosen = (id) => Number(byId(id).value);

/** A figure of a field, and of its error or of something else below; where time runs to the right, with a line at the present. */
function panelOf(name, flat, below = null) {
  const told = make("p", { class: "told" });
  const planes = (below ? ["field"] : ["prediction", "error"]).map((what) => ({
    canvas: make("canvas", { role: "img", "aria-label": `${name}: ${what}` }), now: flat ? make("div", { class: "now" }) : null }));
  const [field, error] = planes.map(({ canvas, now }) => make("div", { class: "plane" }, canvas, now));
  return { planes, told, figure: make("figure", { class: "panel", "data-name": name }, make("figcaption", {}, name), field, told, error ?? below) };
}

class Player {
  constructor(data) {
    const flat = data.planes[0].points.length === 1;
    Object.assign(this, { data, flat, frames: data.frames, volume: data.planes[0].place !== "", shown: [] });
    Object.assign(this, { frame: Math.min(9, data.frames - 1), playing: null, truth: null, redrawProfile: null });
    this.bar = make("canvas", { width: 256, height: 1, "aria-hidden": "true" });
    this.ends = [make("span", {}), make("span", {})];
    this.name = make("strong", {});
    Object.assign(this, { hidden: make("span", { class: "hidden-points" }), axes: make("span", { class: "axes" }), magnified: make("span", { class: "axes" }) });
    this.scale = make("div", { class: "scale" }, this.name, this.ends[0], this.bar, this.ends[1], this.hidden, this.axes, this.magnified);
    this.truthPanel = panelOf("truth", flat, this.scale);
    const caption = this.volume ? CAPTIONS.volume : flat ? CAPTIONS.flat : CAPTIONS.plane;
    byId("player-caption").textContent = STUDY.alone ? caption.replace(FOLLOW, "Every frame is answered from its own observation") : caption;
    byId("panels").classList.toggle("flat", this.flat);
    byId("p-size").closest(".field").hidden = flat;
    this.fillControls();
  }

  fillControls() {
    const { data } = this;
    const best = data.models.findIndex((m) => m.label === STUDY.answers[0]?.label);
    const first = [...new Set([Math.max(0, best), ...data.models.keys()])].slice(0, window.innerWidth < 760 ? 2 : 3);
    byId("p-models").replaceChildren(...data.models.map((m, i) => make("label", {},
      make("input", { type: "checkbox", value: i, checked: first.includes(i) }), m.name)));
    byId("p-models").closest("fieldset").hidden = data.models.length < 2;
    this.fill("p-plane", data.planes.map((p) => p.place));
    this.fill("p-trajectory", data.planes[0].quantities[0].data.map((_, i) => `${i + 1}`));
    this.fill("p-member", data.models[0].errors[0][0].map((_, i) => `${i + 1}`));
    this.fill("p-quantity", data.planes[0].quantities.map((q) => q.name));
    byId("p-frame").max = String(this.frames - 1);
  }

  /** Errors that would hardly be seen are drawn larger from the start. */
  magnify() {
    const [low, high] = this.quantity.limits;
    const sizes = this.shown.flatMap(({ error }) => [...error].filter((v) => !Number.isNaN(v)).map((v) => v * v));
    const rms = Math.sqrt(sizes.reduce((a, b) => a + b, 0) / Math.max(1, sizes.length));
    const share = rms / (high - low || 1);
    byId("p-gain").value = share < 0.002 ? "100" : share < 0.03 ? "10" : "1";
  }

  /** Names to choose from, hidden where there is no choice. */
  fill(id, names) {
    options(byId(id), names.map((name, i) => [i, name]), byId(id).value || 0);
    byId(id).closest(".field").hidden = names.length < 2;
  }

  /** Unpack what the controls choose, and draw it. */
  load() {
    const plane = this.data.planes[chosen("p-plane")];
    this.fill("p-quantity", plane.quantities.map((q) => q.name)); // the vorticity of another plane has another name
    const quantity = plane.quantities[chosen("p-quantity")];
    Object.assign(this, { plane, quantity, points: plane.points, size: plane.points.reduce((a, b) => a * b, 1) });
    this.truth = unpackTruth(quantity, chosen("p-trajectory"));
    const kept = [...byId("p-models").querySelectorAll("input:checked")].map((box) => this.data.models[Number(box.value)]);
    this.shown = kept.map((model) => {
      const error = unpackError(model.errors[chosen("p-plane")][chosen("p-quantity")][chosen("p-member")][chosen("p-trajectory")]);
      return { model, error, prediction: this.truth.map((v, i) => v + error[i]), panel: panelOf(model.name, this.flat) };
    });
    this.truthPanel.told.textContent = this.volume ? `at ${plane.place}` : "";
    byId("panels").replaceChildren(this.truthPanel.figure, ...this.shown.map(({ panel }) => panel.figure));
    byId("panels").classList.toggle("large", byId("p-size").value === "large");
    const gain = chosen("p-gain"), [low, high] = quantity.limits, signed = low < 0 && high > 0;
    this.map = signed ? MAPS.signed : MAPS.amount;
    const half = signed ? high : (high - low) / 2;
    this.errorLimits = [-half / gain, half / gain];
    this.label(quantity, gain);
    if (this.flat) this.drawPanels(0, this.frames, this.points[0]);
    this.drawFrame();
  }

  /** Every picture with the line of the present. */
  get planes() { return [this.truthPanel, ...this.shown.map(({ panel }) => panel)].flatMap(({ planes }) => planes); }

  /** The scale below the truth, what is grey in the pictures, and their axes. */
  label(quantity, gain) {
    const { plane } = this;
    this.name.textContent = quantity.name;
    this.ends[0].textContent = show(quantity.limits[0]);
    this.ends[1].textContent = show(quantity.limits[1]);
    paint(this.bar, 256, 1, (i) => i, [0, 255], this.map);
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = css(NOTHING);
    this.hidden.replaceChildren(...(plane.hidden ? [swatch, plane.hidden] : []));
    this.magnified.textContent = gain > 1 ? `errors ${gain} times larger` : "errors in the same colours";
    if (this.flat) return;
    this.axes.textContent = `${plane.axes[0]} to the right, ${plane.axes[1]} upwards`;
    for (const { canvas } of this.planes) canvas.style.aspectRatio = `1 / ${plane.ratio}`;
  }

  drawPanels(offset, width, height) {
    const { limits } = this.quantity;
    paint(this.truthPanel.planes[0].canvas, width, height, (i) => this.truth[offset + i], limits, this.map);
    for (const { prediction, error, panel } of this.shown) {
      paint(panel.planes[0].canvas, width, height, (i) => prediction[offset + i], limits, this.map);
      paint(panel.planes[1].canvas, width, height, (i) => error[offset + i], this.errorLimits, MAPS.signed);
    }
  }

  drawFrame() {
    const at = this.frame * this.size;
    const time = this.data.first + this.frame * this.data.dt;
    if (this.flat) this.drawProfile(at, time); else this.drawPanels(at, this.points[0], this.points[1]);
    byId("p-frame").value = String(this.frame);
    byId("p-time").textContent = `${this.frame + 1} of ${this.frames}, t = ${show(time)}`;
    for (const one of this.shown) one.panel.told.textContent = this.summary(one.error, at);
  }

  drawProfile(at, time) {
    const { quantity, points } = this;
    const [left, right] = this.plane.domain[0];
    for (const { now } of this.planes) now.style.left = `${((this.frame + 0.5) / this.frames) * 100}%`;
    const x = Array.from({ length: points[0] }, (_, i) => left + ((right - left) * i) / points[0]);
    const values = (all) => [...all.subarray(at, at + this.size)].map((v) => (Number.isNaN(v) ? null : v));
    const spec = {
      label: `Profile at time ${show(time)}`, x: { label: `position ${this.plane.axes[0]}`, short: `${this.plane.axes[0]} =` }, y: { label: quantity.name, range: [quantity.low, quantity.high] }, height: 230,
      series: [
        { name: "truth", style: "truth", x, y: values(this.truth) },
        ...this.shown.map(({ model, prediction }) => ({ name: model.name, style: styleOf(model.label), plain: true, x, y: values(prediction) })),
      ],
    };
    if (this.redrawProfile) this.redrawProfile(spec); else this.redrawProfile = chart(byId("profile"), spec);
  }

  /** The error of one frame, in numbers. */
  summary(error, at) {
    let sum = 0, count = 0, broken = 0;
    for (let i = at; i < at + this.size; i += 1) {
      if (!Number.isNaN(error[i])) { sum += error[i] ** 2; count += 1; } else if (!Number.isNaN(this.truth[i])) broken += 1;
    }
    if (broken) return "broke down: it is not finite here";
    const rms = Math.sqrt(sum / Math.max(1, count));
    return `RMS error ${show(rms)} (${show((100 * rms) / (this.quantity.spread || 1), 2)} %)`;
  }

  go(frame) { this.frame = Math.min(this.frames - 1, Math.max(0, frame)); this.drawFrame(); }

  stop() { clearInterval(this.playing); this.playing = null; byId("p-play").textContent = "Play"; }

  play() {
    if (this.frame >= this.frames - 1) this.go(0);
    byId("p-play").textContent = "Pause";
    const next = () => { if (this.frame >= this.frames - 1) this.stop(); else this.go(this.frame + 1); };
    this.playing = setInterval(next, Math.max(40, Math.min(150, 6000 / this.frames)));
  }

  listen() {
    byId("p-play").addEventListener("click", () => (this.playing ? this.stop() : this.play()));
    byId("p-frame").addEventListener("input", (event) => { this.stop(); this.go(Number(event.target.value)); });
    for (const id of ["p-models", "p-trajectory", "p-member", "p-plane", "p-quantity", "p-gain", "p-size"]) byId(id).addEventListener("change", () => this.load());
    if (!this.flat) return;
    const scrub = (event) => {
      if (event.target.tagName !== "CANVAS" || event.target === this.bar || (event.type === "pointermove" && !event.buttons)) return;
      const box = event.target.getBoundingClientRect();
      this.stop();
      this.go(Math.floor(((event.clientX - box.left) / box.width) * this.frames));
    };
    byId("panels").addEventListener("pointerdown", scrub);
    byId("panels").addEventListener("pointermove", scrub);
  }
}

function startPlayer() {
  if (!STUDY.rollouts) { byId("player").hidden = true; return; }
  const player = new Player(STUDY.rollouts);
  player.load();
  player.magnify();
  player.load();
  player.listen();
}
