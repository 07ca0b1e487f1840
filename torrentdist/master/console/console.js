// Live parts and the buttons that copy commands. Every page works without this file.
"use strict";

for (const part of document.querySelectorAll("[data-live]")) {
  let source;
  const follow = () => {
    source?.close();
    if (document.hidden) return; // A page that nobody sees costs its master nothing.
    source = new EventSource(part.dataset.live);
    source.onmessage = (event) => {
      // A part that the reader works in stays as it is: new rows would take the focus away.
      if (!part.contains(document.activeElement)) part.innerHTML = event.data;
    };
    source.onerror = (event) => part.classList.toggle("soft", event.target.readyState === EventSource.CLOSED);
  };
  follow();
  document.addEventListener("visibilitychange", follow);
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
