// The rollout player: truth, prediction and error beside each other.

function bytes(text) {
  const raw = atob(text);
  const made = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) made[i] = raw.charCodeAt(i);
  return made;
}

/** Values of the truth; NaN where the flow has a body. */
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

function startPlayer() {
  const data = STUDY.rollouts;
  if (!data) { byId("player").hidden = true; return; }
  const [frames, ...points] = data.shape;
  const flat = points.length === 1;
  const maps = { signed: table(RDBU), amount: table(CIVIDIS) };
  const state = { frame: 0, playing: null, truth: null, error: null, prediction: null };
  byId("player-caption").textContent = flat
    ? "Space against time: position upwards, time to the right. Truth and prediction start from the same state; their difference is small at first and grows. Drag in a picture or use the slider to see the profile at one time below."
    : "Truth, prediction and their difference at the same time. Both start from the same state; the difference is small at first and grows. Play, or drag the slider.";
  const panels = Object.fromEntries(["truth", "prediction", "error"].map((name) => {
    const canvas = make("canvas", { role: "img", "aria-label": name });
    const now = flat ? make("div", { class: "now" }) : null;
    const title = make("figcaption", {}, name);
    return [name, { canvas, now, title, figure: make("figure", { class: "panel" }, title, make("div", { class: "plane" }, canvas, now)) }];
  }));
  const bar = make("canvas", { width: 256, height: 1, "aria-hidden": "true" });
  const ends = [make("span", {}), make("span", {})];
  byId("panels").classList.toggle("flat", flat);
  byId("panels").append(...Object.values(panels).map((p) => p.figure));
  byId("panels").after(make("div", { class: "scale" }, ends[0], bar, ends[1]));
  const input = (id) => byId(id);
  options(input("p-model"), data.models.map((m, i) => [i, m.name]), data.models.length - 1);
  options(input("p-trajectory"), data.quantities[0].data.map((_, i) => [i, `${i + 1}`]), 0);
  options(input("p-member"), data.models[0].errors[0].map((_, i) => [i, `${i + 1}`]), 0);
  options(input("p-quantity"), data.quantities.map((q, i) => [i, q.name]), 0);
  for (const [id, list] of [["p-member", data.models[0].errors[0]], ["p-quantity", data.quantities], ["p-trajectory", data.quantities[0].data]]) {
    input(id).closest(".field").hidden = list.length < 2;
  }
  input("p-frame").max = String(frames - 1);
  const number = (id) => Number(input(id).value);
  const size = points.reduce((a, b) => a * b, 1);
  let redrawProfile = null;

  function load() {
    const quantity = data.quantities[number("p-quantity")];
    const model = data.models[number("p-model")];
    state.quantity = quantity;
    state.truth = unpackTruth(quantity, number("p-trajectory"));
    state.error = unpackError(model.errors[number("p-quantity")][number("p-member")][number("p-trajectory")]);
    state.prediction = state.truth.map((v, i) => v + state.error[i]);
    panels.prediction.title.textContent = `prediction: ${model.name}`;
    const gain = number("p-gain");
    panels.error.title.textContent = gain > 1 ? `error × ${gain}` : "error";
    const [low, high] = quantity.limits;
    const signed = low < 0 && high > 0;
    state.map = signed ? maps.signed : maps.amount;
    const half = signed ? high : (high - low) / 2;
    state.errorLimits = [-half / gain, half / gain];
    for (let i = 0; i < 2; i += 1) ends[i].textContent = show(quantity.limits[i]);
    paint(bar, 256, 1, (i) => i, [0, 255], state.map);
    if (flat) drawAll(0, frames, points[0]);
    drawFrame();
  }

  function drawAll(offset, width, height) {
    const limits = state.quantity.limits;
    paint(panels.truth.canvas, width, height, (i) => state.truth[offset + i], limits, state.map);
    paint(panels.prediction.canvas, width, height, (i) => state.prediction[offset + i], limits, state.map);
    paint(panels.error.canvas, width, height, (i) => state.error[offset + i], state.errorLimits, maps.signed);
  }

  function drawFrame() {
    const at = state.frame * size;
    const time = data.first + state.frame * data.dt;
    if (flat) {
      for (const p of Object.values(panels)) p.now.style.left = `${((state.frame + 0.5) / frames) * 100}%`;
      const x = Array.from({ length: points[0] }, (_, i) => data.domain[0][0] + ((data.domain[0][1] - data.domain[0][0]) * i) / points[0]);
      const spec = {
        label: `Profile at time ${show(time)}`, x: { label: "position x", short: "x =" }, y: { label: state.quantity.name, range: [state.quantity.low, state.quantity.high] }, height: 230,
        series: [
          { name: "truth", style: "truth", x, y: [...state.truth.subarray(at, at + size)].map(real) },
          { name: "prediction", style: 1, dash: "", plain: true, x, y: [...state.prediction.subarray(at, at + size)].map(real) },
        ],
      };
      if (redrawProfile) redrawProfile(spec); else redrawProfile = chart(byId("profile"), spec);
    } else {
      drawAll(at, points[0], points[1]);
    }
    input("p-frame").value = String(state.frame);
    input("p-time").textContent = `${state.frame + 1} of ${frames}, t = ${show(time)}`;
    byId("p-readout").textContent = summary(at);
  }

  const real = (v) => (Number.isNaN(v) ? null : v);
  function summary(at) {
    let sum = 0, count = 0, broken = 0;
    for (let i = at; i < at + size; i += 1) {
      if (!Number.isNaN(state.error[i])) { sum += state.error[i] ** 2; count += 1; } else if (!Number.isNaN(state.truth[i])) broken += 1;
    }
    if (broken) return "The prediction broke down: it is not finite here.";
    const rms = Math.sqrt(sum / Math.max(1, count));
    return `RMS error ${show(rms)}, ${show((100 * rms) / (state.quantity.spread || 1))} % of the flow's spread.`;
  }

  function go(frame) { state.frame = Math.min(frames - 1, Math.max(0, frame)); drawFrame(); }
  function stop() { clearInterval(state.playing); state.playing = null; byId("p-play").textContent = "Play"; }
  function play() {
    if (state.frame >= frames - 1) go(0);
    byId("p-play").textContent = "Pause";
    state.playing = setInterval(() => { if (state.frame >= frames - 1) stop(); else go(state.frame + 1); }, Math.max(40, Math.min(150, 6000 / frames)));
  }
  byId("p-play").addEventListener("click", () => (state.playing ? stop() : play()));
  input("p-frame").addEventListener("input", (event) => { stop(); go(Number(event.target.value)); });
  for (const id of ["p-model", "p-trajectory", "p-member", "p-quantity", "p-gain"]) input(id).addEventListener("change", load);
  if (flat) {
    for (const p of Object.values(panels)) {
      const scrub = (event) => {
        if (event.type === "pointermove" && !event.buttons) return;
        const box = p.canvas.getBoundingClientRect();
        stop();
        go(Math.floor(((event.clientX - box.left) / box.width) * frames));
      };
      p.canvas.addEventListener("pointerdown", scrub);
      p.canvas.addEventListener("pointermove", scrub);
    }
  }
  load();
}
