// Colour maps that read well without red–green vision: one for amounts, one for signed values.

const CIVIDIS = [[0, 32, 76], [0, 42, 102], [52, 69, 109], [87, 93, 109], [124, 123, 120], [166, 157, 117], [211, 193, 100], [253, 231, 55]];
const RDBU = [[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [209, 229, 240], [247, 247, 247], [253, 219, 199], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]];
const NOTHING = [140, 140, 140];

/** The colour at t ∈ [0, 1] between evenly spaced stops. */
function between(stops, t) {
  const place = Math.min(1, Math.max(0, t)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(place));
  return stops[i].map((c, j) => Math.round(c + (stops[i + 1][j] - c) * (place - i)));
}

const css = ([r, g, b]) => `rgb(${r},${g},${b})`;

/** 256 colours as a flat table, for pictures. */
function table(stops) {
  const made = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i += 1) made.set(between(stops, i / 255), 3 * i);
  return made;
}
