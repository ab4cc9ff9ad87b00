// Keeps an open page as fresh as the monitor: takes what is pushed, asks for what is missing, says whether it is live.
// hx-ws opens the socket (and opens it again), htmx swaps. The page is complete without this file.
(() => {
  "use strict";
  const WITHOUT_SOCKET_S = 10; // then the page polls
  const POLL_EVERY_S = 30;
  const SAY_AT_MOST_EVERY_S = 60;
  const SPREAD_S = 2; // thousands of pages must not ask at the same moment

  const byId = (id) => document.getElementById(id);
  const note = byId("live-note");
  const pause = byId("pause");
  const live = byId("live");
  const now = () => Date.now() / 1000;

  let paused = false;
  let lostAt = now();
  let everConnected = false;
  let polledAt = 0;
  let lastSaid = -SAY_AT_MOST_EVERY_S;
  let verdict = document.title;
  let saidVerdict = verdict;
  const timeless = (words) => words.replace(/\d+ (s|min|h|d)\b/g, ""); // that time passes is no news
  let etag = live.dataset.etag;
  let asking = false;
  let asked = null; // names of parts to ask for, or the set of nothing: all
  let timer = null;

  const inWords = (seconds) => {
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
    }
    return `${Math.max(0, Math.floor(seconds))} s`;
  };

  // ------- taking what comes
  const swap = async (name, html) => {
    await htmx.swap({ target: byId(`p-${name}`), swap: "innerMorph", text: html, transition: false });
  };

  const rebuild = async (message) => {
    const text = Object.entries(message.parts).map(([name, html]) => `<div class="part" id="p-${name}">${html}</div>`);
    await htmx.swap({ target: live, swap: "innerMorph", text: text.join("\n"), transition: false });
  };

  const take = async (message, pushed) => {
    if (paused) return;
    if (message.changed) return ask(null, SPREAD_S);
    const names = Object.keys(message.digests);
    const here = [...live.children].map((part) => part.id.slice(2));
    if (names.join() !== here.join()) {
      if (names.some((name) => !(name in message.parts))) return ask(null, SPREAD_S);
      await rebuild(message);
    } else {
      for (const [name, html] of Object.entries(message.parts)) {
        if (!(pushed && "own" in byId(`p-${name}`).dataset)) await swap(name, html);
      }
    }
    const missing = [];
    for (const [name, digest] of Object.entries(message.digests)) {
      const part = byId(`p-${name}`);
      const own = pushed && "own" in part.dataset;
      if (name in message.parts && !own) part.dataset.digest = digest;
      else if (own ? part.dataset.pushed !== digest : part.dataset.digest !== digest) missing.push(name);
      if (own) part.dataset.pushed = digest;
    }
    document.title = message.title;
    verdict = message.title;
    if (missing.length) ask(missing, SPREAD_S);
    showTimes();
    document.dispatchEvent(new Event("sepal:swapped"));
  };

  // ------- asking for what is missing
  const ask = (names, spread) => {
    asked = asked === null ? new Set(names ?? []) : names === null || asked.size === 0 ? new Set() : new Set([...asked, ...names]);
    timer ??= setTimeout(fetchAsked, spread * 1000 * Math.random());
  };

  const fetchAsked = async () => {
    timer = null;
    if (asked === null || paused || document.hidden) return;
    if (asking) return void (timer = setTimeout(fetchAsked, 200));
    asking = true;
    const all = asked.size === 0;
    const query = new URLSearchParams(location.search);
    query.set("fragment", all ? "all" : [...asked].join());
    asked = null;
    polledAt = now();
    try {
      const answer = await fetch(`${location.pathname}?${query}`, { cache: "no-store", headers: all ? { "If-None-Match": etag } : {} });
      const json = answer.headers.get("Content-Type")?.startsWith("application/json");
      if (answer.status !== 304 && json && answer.status < 429) {
        const message = await answer.json();
        await take(message, false);
        if (all) etag = answer.headers.get("ETag");
      }
    } catch {
      // No network: the note says so, and the next try is under way.
    } finally {
      asking = false;
    }
  };

  // ------- saying how things are
  const showTimes = () => {
    for (const time of document.querySelectorAll("#live time[data-counts]")) {
      const away = (Date.parse(time.dateTime) / 1000 - now()) * (time.dataset.counts === "down" ? 1 : -1);
      const words = time.dataset.counts === "down" && away < 1 ? "a moment" : inWords(away);
      if (time.textContent !== words) time.textContent = words;
    }
  };

  const waiting = () => (everConnected || now() - lostAt > 3 ? "No live updates: reconnecting" : "Connecting");

  // Where no worker is left to push, the page asks by itself.
  const isOld = () => {
    const time = document.querySelector("#checked time[data-stale-after]");
    return time !== null && now() - Date.parse(time.dateTime) / 1000 > Number(time.dataset.staleAfter) + 1;
  };

  const showState = () => {
    const words = paused ? "Updates are paused" : lostAt === null ? "Live" : waiting();
    if (note.textContent !== words) note.textContent = words;
  };

  const sayVerdict = () => {
    if (timeless(verdict) === timeless(saidVerdict) || now() - lastSaid < SAY_AT_MOST_EVERY_S) return;
    saidVerdict = verdict;
    lastSaid = now();
    byId("verdict-changed").textContent = verdict;
  };

  document.addEventListener("htmx:ws:after:connection", () => {
    lostAt = null;
    everConnected = true;
    showState();
    ask(null, 0); // only now: whatever is pushed from here on arrives
  });
  document.addEventListener("htmx:ws:close", () => {
    lostAt ??= now();
    showState();
  });
  document.addEventListener("htmx:ws:before:message:incoming", (event) => {
    event.preventDefault(); // ours to take, in parts
    event.detail.waitUntil(event.detail.message.json().then((message) => take(message, true)));
  });
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume updates" : "Pause updates";
    showState();
    if (!paused) ask(null, 0);
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && asked !== null) fetchAsked();
  });
  // A page that comes back from the browser's memory has closed its socket for good.
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
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
    if ((alone || isOld()) && now() - polledAt > POLL_EVERY_S) ask(null, 0);
  }, 1000);
})();
