// Live parts and the buttons that copy commands. Every page works without this file.
"use strict";

const LATE_MS = 5000; // Two updates that a master sends each second, and the pause before the next stream.
const late = document.querySelector("[data-late]");
for (const part of document.querySelectorAll("[data-live]")) {
  const age = part.nextElementSibling;
  let source, heard = Date.now();
  const tell = () => { heard = Date.now(); age.textContent = `Updated ${new Date().toLocaleTimeString()}`; };
  const follow = () => {
    source?.close();
    source = undefined;
    if (document.hidden) return; // A page that nobody sees costs its master nothing.
    source = new EventSource(part.dataset.live);
    source.onmessage = (event) => {
      tell();
      // A part that the reader works in stays as it is: new rows would take the focus away.
      if (!part.contains(document.activeElement)) part.innerHTML = event.data;
    };
    source.addEventListener("tick", tell);
  };
  const look = () => {
    const isLate = Date.now() - heard > LATE_MS;
    part.classList.toggle("late", isLate);
    late.hidden = !isLate || document.hidden;
    if (isLate && source?.readyState === EventSource.CLOSED) follow();
  };
  tell();
  follow();
  setInterval(look, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) heard = Date.now(); follow(); });
  window.addEventListener("pagehide", () => source?.close());
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const code = button.previousElementSibling;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  } catch {
    // Without HTTPS a browser may refuse: select the text, so that the reader can copy it.
    getSelection().selectAllChildren(code);
  }
});
