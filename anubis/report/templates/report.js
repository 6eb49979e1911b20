"use strict";

// --- the reason for a verdict, beside the tile that the pointer or the focus is on -------------
const tip = document.getElementById("tip");
function tell() {
  const tile = document.querySelector("[data-node]:hover") ?? document.querySelector("[data-node]:focus-visible");
  const at = tile?.getBoundingClientRect();
  tip.hidden = !tile || at.bottom < 0 || at.top > innerHeight;
  if (tip.hidden) return;
  tip.textContent = tile.getAttribute("aria-label");
  const { width, height } = tip.getBoundingClientRect(), below = at.bottom + 8;
  tip.style.left = Math.max(8, Math.min(at.left, innerWidth - width - 8)) + "px";
  tip.style.top = (below + height < innerHeight ? below : at.top - height - 8) + "px";
}
for (const moment of ["pointerover", "focusin", "focusout", "scroll"])
  addEventListener(moment, tell, { passive: true });

// --- the list of verdicts, a page at a time ----------------------------------------------------
const { words, rows, judgements } = JSON.parse(document.getElementById("verdict-data").textContent);
const form = document.querySelector(".filter"), body = document.querySelector("#verdicts tbody");
const PAGE = 50, HEALTHY = judgements.findIndex(([name]) => name === "healthy");
let first = 0;

const counts = judgements.map((_, index) => rows.filter(row => row[4] === index).length);
const bad = rows.length - counts[HEALTHY];
const choices = [["all", "all", rows.length], ["not-healthy", "not healthy", bad],
  ...judgements.map(([name], index) => [String(index), name.replace("-", " "), counts[index]])];
for (const [value, name, count] of choices)
  form.judgement.add(new Option(`${name} (${count.toLocaleString("en")})`, value));
form.judgement.value = bad ? "not-healthy" : "all";

function wanted() {
  const sought = form.words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const choice = form.judgement.value;
  return rows.filter(row => {
    if (choice === "not-healthy" ? row[4] === HEALTHY : choice !== "all" && row[4] !== +choice) return false;
    if (!sought.length) return true;
    const text = row.map((word, i) => i === 4 ? judgements[word][0] : words[word]).join(" ").toLowerCase();
    return sought.every(word => text.includes(word));
  });
}
function cell(text, kind, tag = "td") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function line([node, benchmark, metric, device, judgement, code, reason, similarity]) {
  const row = document.createElement("tr"), [name, glyph] = judgements[judgement];
  const head = cell(words[node], "", "th");
  head.scope = "row";
  if (!words[node].includes(",")) head.className = "nowrap";
  const verdict = cell("", "");
  verdict.append(cell(`${glyph} ${name.replace("-", " ")}`, `badge ${name}`, "span"));
  const why = cell(words[reason], "");
  why.append(document.createElement("br"), cell(words[code], "", "code"));
  row.append(head, cell(words[benchmark], ""), cell(words[metric], ""), cell(words[device], ""),
    verdict, cell(words[similarity], "n"), why);
  return row;
}
function list() {
  const found = wanted(), last = Math.min(first + PAGE, found.length);
  body.replaceChildren(...found.slice(first, last).map(line));
  form.querySelector("output").textContent =
    found.length ? `${(first + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of ${found.length.toLocaleString("en")}` : "none";
  form.back.disabled = first === 0;
  form.on.disabled = last === found.length;
  form.querySelector(".pager").hidden = found.length <= PAGE;
}
form.addEventListener("input", () => { first = 0; list(); });
form.addEventListener("submit", event => event.preventDefault());
form.back.addEventListener("click", () => { first -= PAGE; list(); });
form.on.addEventListener("click", () => { first += PAGE; list(); });
addEventListener("click", event => {
  const tile = event.target.closest("[data-node]");
  if (!tile) return;
  form.words.value = tile.dataset.node;
  form.judgement.value = "all";
  first = 0;
  list();
});
list();

// --- the plots: started only when one comes into view ------------------------------------------
const plain = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The empirical distribution as steps; see figures.py for the ranks of a thinned curve. */
function steps({ n, x }, scale = 1) {
  const xs = [x[0] * scale], ys = [0];
  x.forEach((value, i) => {
    const rank = x.length === n ? i : Math.round(i * (n - 1) / (x.length - 1));
    xs.push(value * scale, value * scale);
    ys.push(ys[ys.length - 1], (rank + 1) / n);
  });
  return { x: xs, y: ys };
}
function together(curves) {
  const all = { x: [], y: [] };
  for (const one of curves.map(curve => steps(curve))) {
    all.x.push(...one.x, null);
    all.y.push(...one.y, null);
  }
  return all;
}
function traces(figure) {
  const { reference, healthy, unknown, defective, direction } = figure, made = [];
  const line = { mode: "lines", hoverinfo: "skip" };
  if (healthy.length) made.push({ ...line, ...together(healthy),
    line: { color: colour("curve"), width: 1 }, opacity: .8 });
  if (unknown.length) made.push({ ...line, ...together(unknown),
    line: { color: colour("unknown-fill"), width: 1.2, dash: "dot" } });
  if (reference) {
    const edge = steps(reference, direction === "either" ? 1 / reference.alpha : 1), limit = steps(reference, direction === "lower" ? 1 / reference.alpha : reference.alpha);
    made.push({ ...line, x: [...edge.x, ...limit.x.reverse()], y: [...edge.y, ...limit.y.reverse()], fill: "toself",
      fillcolor: colour("reference") + "26", line: { width: 0 } });
    made.push({ ...line, ...steps(reference), line: { color: colour("reference"), width: 2 } });
  }
  for (const curve of defective) made.push({ mode: "lines", ...steps(curve),
    line: { color: colour("defective"), width: 2.2 },
    hovertemplate: `${plain(curve.name)}<br>%{x:.4~g} ${plain(figure.unit)} at %{y:.0%}<extra></extra>` });
  return made;
}
/** Names sit on their curves, each at its own height, on the side where there is room. */
function labels({ defective }, [low, high]) {
  return defective.map((curve, i) => {
    const height = .9 - .8 * (i + .5) / defective.length, { x, y } = steps(curve);
    const at = x[y.findIndex(level => level >= height)], left = at > (low + high) / 2;
    return { x: at, y: height, text: plain(curve.name), showarrow: false, opacity: .92, bgcolor: colour("raised"),
      xanchor: left ? "right" : "left", xshift: left ? -6 : 6, font: { color: colour("defective"), size: 12 } };
  });
}
/** Room at both ends: a curve on the frame itself is easily overlooked. */
function extent(traces) {
  let low = Infinity, high = -Infinity;
  for (const { x } of traces) for (const value of x) if (value !== null) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const room = (high - low) * .03 || Math.abs(high) * .03 || 1;
  return [low - room, high + room];
}
function layout(figure, traces) {
  const range = extent(traces), axis = { gridcolor: colour("line"), zeroline: false, linecolor: colour("line"), automargin: true };
  return {
    margin: { l: 44, r: 12, t: 10, b: 40 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("quiet") },
    xaxis: { ...axis, title: { text: `${plain(figure.unit)} (${figure.direction === "either" ? "any change is worse" : `${figure.direction} is better`})`, standoff: 8 }, nticks: 7, range },
    yaxis: { ...axis, range: [-.02, 1.02], tickformat: ".0%", dtick: .25, title: { text: "samples at or below" } },
    showlegend: false, annotations: labels(figure, range), hovermode: "closest",
  };
}
function plotly() {
  if (!window.Plotly) {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
  }
  return window.Plotly;
}
function draw(plot) {
  const figure = JSON.parse(plot.parentElement.querySelector("script").textContent);
  plot.dataset.drawn = "yes";
  const curves = traces(figure);
  plotly().react(plot, curves, layout(figure, curves), { displayModeBar: false, responsive: true });
}
const plots = [...document.querySelectorAll(".plot")];
const folded = plot => plot.closest("details:not([open])");
function drawWhatIsNear() {
  for (const plot of plots) {
    if (plot.dataset.drawn || folded(plot)) continue;
    const { top, bottom } = plot.getBoundingClientRect();
    if (top < innerHeight + 300 && bottom > -300) draw(plot);
  }
}
for (const moment of ["scroll", "resize", "toggle"])
  addEventListener(moment, drawWhatIsNear, { passive: true, capture: true }); // toggle does not bubble
drawWhatIsNear();
const redraw = which => plots.filter(which).forEach(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(plot => plot.dataset.drawn));
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("on-paper");
  redraw(plot => !folded(plot));
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("on-paper");
  redraw(plot => plot.dataset.drawn);
});
