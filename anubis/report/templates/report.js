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
