// Algorithm 2 on stored biases, the same as start_level and greedy_schedule of biasbound.core.search.

/** σ_0's number: the lowest level, or the highest whose clean-input error is within one standard error of the least. */
function startLevel(landscape, rule) {
  if (rule === "sigma" || landscape.clean.some((c) => c === null)) return 0;
  const mean = (c) => (c[0] === null ? Infinity : c[0]);
  let best = landscape.clean[0];
  for (const c of landscape.clean) if (mean(c) < mean(best)) best = c;
  const slack = best[1] === null ? 0 : best[1];
  let start = 0;
  landscape.clean.forEach((c, i) => { if (mean(c) <= mean(best) + slack) start = i; });
  return start;
}

/** A function (to, from) → {mean, stderr} by the levels' numbers; JSON holds an infinite number as null. */
function biasTable(landscape) {
  const n = landscape.levels.length;
  const cells = new Array(n * n);
  for (const [to, from, mean, stderr] of landscape.biases) cells[to * n + from] = { mean: mean ?? Infinity, stderr: stderr ?? Infinity };
  return (to, from) => cells[to * n + from];
}

/** The ladder's steps from low to high: always the largest jump within τ; where none is, the next level, forced. */
function greedySchedule(count, bias, tau, start) {
  const levels = [start];
  const steps = [];
  while (levels[levels.length - 1] < count - 1) {
    const to = levels[levels.length - 1];
    let from = count - 1;
    while (from > to + 1 && !(bias(to, from).mean <= tau)) from -= 1;
    const found = bias(to, from);
    steps.push({ to, from, mean: found.mean, stderr: found.stderr, forced: found.mean > tau });
    levels.push(from);
  }
  return { levels, steps };
}

/** A ladder by its levels' numbers, from low to high, with the biases of its jumps. */
function stepsOf(levels, bias, tau) {
  const steps = levels.slice(1).map((from, i) => ({ to: levels[i], from, ...bias(levels[i], from) }));
  return { levels, steps: steps.map((s) => ({ ...s, forced: s.mean > tau })) };
}
