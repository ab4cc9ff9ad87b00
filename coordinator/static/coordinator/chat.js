// The chat page's answers, word by word. Without this script the same form brings the whole page back.
"use strict";

(() => {
  const form = document.getElementById("talk-form");
  const talk = document.getElementById("talk");
  const note = document.getElementById("talk-note");
  const stop = document.getElementById("talk-stop");
  const whyNot = document.getElementById("chat-why-not");
  if (!form || !window.ReadableStream || !window.TextDecoderStream) return;
  const question = form.elements.question;
  const buttons = form.querySelectorAll("button[name=what]");
  let asking = null;

  const turn = (who, text) => {
    const item = document.getElementById("turn-of-" + who).content.firstElementChild.cloneNode(true);
    item.querySelector(".said").textContent = text;
    talk.append(item);
    item.scrollIntoView({ block: "nearest" });
    return item;
  };

  const showReport = (item, report) => {
    const parts = [];
    report.hops.forEach((hop, place) => {
      const name = document.createElement(hop.path ? "a" : "span");
      if (hop.path) name.href = hop.path;
      name.className = "peer";
      name.textContent = hop.short;
      parts.push(place ? " → " : "Answered by ", name, " (" + hop.blocks + ")");
    });
    if (report.figures) parts.push(" · " + report.figures);
    item.querySelector(".answered").replaceChildren(...parts);
  };

  const complain = (words) => {
    whyNot.hidden = !words;
    whyNot.querySelector(".words").textContent = words;
  };

  const busy = (now) => {
    buttons.forEach((button) => { button.disabled = now; });
    stop.hidden = !now;
    talk.setAttribute("aria-busy", String(now));
    if (!now) note.textContent = "";
  };

  const heard = (item, event) => {
    if (event.note) note.textContent = event.note;
    if (event.report) {
      note.textContent = "";
      showReport(item, event.report);
    }
    if (event.text) {
      item.querySelector(".said").append(event.text);
      item.scrollIntoView({ block: "nearest" });
    }
    if (event.error) complain(event.error);
    if (event.history) {
      form.elements.history.value = event.history;
      document.getElementById("talk-again").hidden = false;
    }
    return Boolean(event.error || event.history);
  };

  const lines = async function* (body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
  };

  const ask = async (sent, item) => {
    const answer = await fetch(form.dataset.stream, { method: "POST", body: sent, signal: asking.signal });
    if (!answer.ok) throw new Error(String(answer.status));
    for await (const line of lines(answer.body)) {
      if (line && heard(item, JSON.parse(line))) return;
    }
    complain("The answer broke off. Send the question again.");
  };

  form.addEventListener("submit", async (event) => {
    if (!event.submitter || event.submitter.value !== "say") return;
    event.preventDefault();
    if (asking || !question.value.trim()) return;
    asking = new AbortController();
    const sent = new FormData(form);
    const words = question.value;
    complain("");
    const mine = turn("user", words.trim());
    const item = turn("assistant", "");
    question.value = "";
    busy(true);
    note.textContent = "Asking the swarm …";
    try {
      await ask(sent, item);
    } catch (error) {
      if (error.name !== "AbortError") complain("The site could not be reached. Send the question again.");
    }
    asking = null;
    busy(false);
    if (!item.querySelector(".said").textContent) {
      // Nothing came of it: the question goes back to where it can be sent again.
      mine.remove();
      item.remove();
      if (!question.value) question.value = words;
    }
    question.focus();
  });

  stop.addEventListener("click", () => { if (asking) asking.abort(); });

  // As in other chats: Enter sends, Shift and Enter begin a new line.
  question.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit(buttons[0]);
  });
})();
