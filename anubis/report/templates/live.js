"use strict";

// --- a campaign as it runs: each message has how many executions ended, and how ----------------
const live = document.querySelector("[data-stream]");
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
