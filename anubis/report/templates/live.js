"use strict";

// --- a campaign as it runs: each message has how many executions ended, and how ----------------
function followCampaign(live) {
  const fields = name => live.querySelector(`[data-field="${name}"]`);
  const stream = new EventSource(live.dataset.stream);
  stream.onmessage = message => {
    const { executions, finished_at } = JSON.parse(message.data);
    const ended = Object.values(executions).reduce((sum, number) => sum + number, 0);
    fields("ended").textContent = ended.toLocaleString("en");
    fields("how").textContent = ended
      ? ": " + Object.entries(executions).sort().map(([how, number]) => `${number.toLocaleString("en")} ${how}`).join(", ")
      : "";
    const bar = live.querySelector("progress");
    if (bar) bar.value = ended;
    if (finished_at !== null) {
      stream.close();
      location.reload();
    }
  };
}

// --- any other page: asked for again when what the service shows has changed --------------------
function followChanges(body) {
  let later;
  const stream = new EventSource(body.dataset.changes);
  stream.onmessage = message => {
    if (JSON.parse(message.data).as_of <= Number(body.dataset.asOf)) return;
    renew(body);
    clearTimeout(later);
    if (body.dataset.again) later = setTimeout(renew, 1000 * body.dataset.again, body);
  };
}

async function renew(body) {
  if (document.activeElement.form) return; // somebody types there
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  const focused = document.activeElement.getAttribute("href");
  for (const part of ["header", "main", "footer"]) {
    const [old, fresh] = [document, next].map(page => page.querySelector(part));
    if (old.innerHTML !== fresh.innerHTML) old.replaceWith(fresh);
  }
  document.title = next.title;
  body.dataset.asOf = next.body.dataset.asOf;
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

// --- tiles of healthy nodes: their names, and the way to their pages ----------------------------
const pageOf = tile => `/nodes/${[tile.closest("[data-cluster]").dataset.cluster, tile.dataset.node].map(encodeURIComponent).join("/")}`;
addEventListener("pointerover", event => {
  const tile = event.target.closest("i[data-node]");
  if (tile) tile.title = `${tile.dataset.node}: healthy`;
}, { passive: true });
addEventListener("click", event => {
  const tile = event.target.closest("i[data-node]");
  if (tile) location.href = pageOf(tile);
});

const live = document.querySelector("[data-stream]");
if (live) followCampaign(live);
else if (document.body.dataset.changes) followChanges(document.body);
