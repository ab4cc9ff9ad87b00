// What the wizard gains with scripts: buttons that copy, and a checklist that renews itself. The pages are complete without it.
(() => {
  "use strict";
  const POLL_EVERY_MS = 15000; // also where no socket opens
  const AGAIN_AFTER_MS = 5000;
  const SAID_FOR_MS = 2500;

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const text = document.getElementById(button.dataset.copy);
    const label = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        // No clipboard outside TLS: then the text is selected, and the keyboard copies it.
        getSelection().selectAllChildren(text);
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = label), SAID_FOR_MS);
    });
  }

  const list = document.getElementById("appearing");
  if (!list || !list.dataset.socket) return;
  const said = document.getElementById("appearing-said");
  document.getElementById("appearing-live").hidden = false;
  let busy = false;

  const renew = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch(`${location.pathname}${location.search}&fragment=1`);
      const html = answer.ok ? await answer.text() : "";
      if (html && html.trim() !== list.dataset.shown) {
        const before = list.querySelector("h1")?.textContent;
        list.innerHTML = html;
        list.dataset.shown = html.trim();
        const now = list.querySelector("h1")?.textContent;
        if (now && now !== before) {
          said.textContent = now;
          document.title = `${now} – Sepal`;
        }
      }
    } catch {
      // Offline for a moment: the next turn asks again.
    } finally {
      busy = false;
    }
  };

  // Whatever is pushed to the model's page is a sign that something changed.
  const listen = () => {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${list.dataset.socket}`);
    socket.addEventListener("message", renew);
    socket.addEventListener("close", () => setTimeout(listen, AGAIN_AFTER_MS));
  };
  listen();
  setInterval(renew, POLL_EVERY_MS);
})();
