// Draws a table's series with uPlot, to zoom into. The table stays beside it: it is the same in words.
(() => {
  "use strict";
  const HEIGHT = 200;
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.className = `key ${name}`;
    document.body.append(probe);
    const found = getComputedStyle(probe);
    const value = name === "text" ? getComputedStyle(document.body).color : found.backgroundColor;
    probe.remove();
    return value;
  };

  const series = (table, column) => {
    const rows = [...table.tBodies[0].rows];
    const at = rows.map((row) => Number(row.cells[0].dataset.at));
    const values = rows.map((row) => (row.cells[column].dataset.value === "" ? null : Number(row.cells[column].dataset.value)));
    return [at, values];
  };

  const clock = (seconds) => {
    const at = new Date(seconds * 1000);
    const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
    const time = at.toISOString().slice(11, 16);
    return time === "00:00" ? day : time;
  };

  const draw = (place) => {
    const table = document.getElementById(place.dataset.plot);
    if (!table || place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    const column = Number(place.dataset.column);
    const unit = table.tHead.rows[0].cells[column].dataset.unit;
    place.hidden = false;
    const reading = document.createElement("p");
    reading.className = "axis";
    reading.setAttribute("aria-hidden", "true");
    const hint = "Point at the line to read it, drag to zoom in, double-click to zoom out. Times are UTC.";
    const told = ({ cursor: { idx }, data }) => {
      if (idx === null || idx === undefined) return hint;
      const value = data[1][idx];
      return `${new Date(data[0][idx] * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC: ${value === null ? "not online" : `${value} ${unit}`}`;
    };
    reading.textContent = hint;
    place.after(reading);
    const text = colour("text");
    const line = colour("online");
    const axis = { stroke: text, grid: { stroke: "rgba(128, 128, 128, .25)" }, ticks: { stroke: "rgba(128, 128, 128, .25)" } };
    const options = {
      width: place.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { y: false },
      legend: { show: false }, // it would be a table without a name; the line below says the same
      hooks: { setCursor: [(plot) => (reading.textContent = told(plot))] },
      scales: { y: { range: (plot, low, high) => [0, (high || 1) * 1.05] } },
      axes: [{ ...axis, values: (plot, splits) => splits.map(clock) }, { ...axis, size: 60 }],
      series: [{}, { stroke: line, width: 2, points: { show: false }, spanGaps: false }],
    };
    const plot = new uPlot(options, series(table, column), place);
    new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
  };

  const drawAll = () => document.querySelectorAll("[data-plot]").forEach(draw);
  drawAll();
  document.addEventListener("sepal:swapped", drawAll);
})();
