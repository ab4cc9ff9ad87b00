// What hx-ws leaves to the page: catching up after a (re)connect, polling without a socket, ticking times, the pause button,
// and telling screen readers of a new verdict. The page is complete without this file.
(() => {
  "use strict";
  const WITHOUT_SOCKET_S = 10; // then the page polls
  const POLL_EVERY_S = 30;
  const SAY_AT_MOST_EVERY_S = 60;

  const byId = (id) => document.getElementById(id);
  const note = byId("live-note");
  const pause = byId("pause");
  const verdict = () => document.querySelector("#live h1")?.textContent.trim() ?? "";
  const now = () => Date.now() / 1000;

  let paused = false;
  let lostAt = now();
  let everConnected = false;
  let polledAt = 0;
  let lastSaid = -SAY_AT_MOST_EVERY_S;
  let saidVerdict = verdict();
  let catchingUp = false;
  let askedMeanwhile = false;

  const inWords = (seconds) => {
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
    }
    return `${Math.max(0, Math.floor(seconds))} s`;
  };

  const catchUp = async () => {
    if (paused || document.hidden) return;
    askedMeanwhile = catchingUp;
    if (catchingUp) return;
    catchingUp = true;
    polledAt = now();
    try {
      await htmx.ajax("GET", `${location.pathname}?fragment=1`, { target: "#live", swap: "innerMorph" });
    } finally {
      catchingUp = false;
      if (askedMeanwhile) catchUp();
    }
  };

  const showTimes = () => {
    for (const time of document.querySelectorAll("#live time[data-counts]")) {
      const away = (Date.parse(time.dateTime) / 1000 - now()) * (time.dataset.counts === "down" ? 1 : -1);
      const words = inWords(away);
      if (time.textContent !== words) time.textContent = words;
    }
  };

  const waiting = () => (everConnected || now() - lostAt > 3 ? "No live updates: reconnecting" : "Connecting");

  // Where no worker is left to push, or a model has left the swarm, the page asks by itself.
  const isOld = () => {
    const time = document.querySelector("#checked time[data-stale-after]");
    return time !== null && now() - Date.parse(time.dateTime) / 1000 > Number(time.dataset.staleAfter) + 1;
  };

  const showState = () => {
    const words = paused ? "Updates are paused" : lostAt === null ? "Live" : waiting();
    if (note.textContent !== words) note.textContent = words;
  };

  const sayVerdict = () => {
    const current = verdict();
    if (current === saidVerdict || now() - lastSaid < SAY_AT_MOST_EVERY_S) return;
    saidVerdict = current;
    lastSaid = now();
    byId("verdict-changed").textContent = current;
  };

  document.addEventListener("htmx:ws:after:connection", () => {
    lostAt = null;
    everConnected = true;
    showState();
    catchUp(); // only now: whatever is pushed from here on arrives
  });
  document.addEventListener("htmx:ws:close", () => {
    lostAt ??= now();
    showState();
  });
  // Also what was under way when the button was pressed.
  for (const arriving of ["htmx:ws:before:message:incoming", "htmx:before:swap"]) {
    document.addEventListener(arriving, (event) => {
      if (paused) event.preventDefault();
    });
  }
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    showState();
    catchUp();
  });

  // Connected only here: htmx may start before its extension is loaded, and the socket would open before anyone listens.
  const socket = byId("socket");
  socket.setAttribute("hx-ws:connect", socket.dataset.socket);
  htmx.process(socket);

  byId("live-bar").hidden = false;
  setInterval(() => {
    showTimes();
    showState();
    sayVerdict();
    const alone = lostAt !== null && now() - lostAt > WITHOUT_SOCKET_S;
    if ((alone || isOld()) && now() - polledAt > POLL_EVERY_S) catchUp();
  }, 1000);
})();
