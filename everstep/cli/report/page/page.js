// The page is complete without this script. It adds zoom, and a slider that shows the values at each second.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const inspector = byId("inspector");
  if (!inspector) return;

  const run = JSON.parse(byId("run").textContent);
  for (const node of run.nodes) {
    let at = 0;
    node.at = node.tenths.map((length) => (at += length) - length);
  }
  const TENTHS = 10;
  const length = Math.max(run.seconds * TENTHS, 1);
  const MIN_WINDOW = Math.min(length, 20 * TENTHS);
  const lanes = byId("lanes");
  const slider = byId("second");
  const reading = byId("reading");
  const placedElements = [...lanes.querySelectorAll("[data-t]")];
  const stretchedPictures = [...lanes.querySelectorAll(".stretched")];
  const cursors = [...lanes.querySelectorAll(".cursor")];
  const marks = [...lanes.querySelectorAll("a.mark")];
  const axis = byId("axis");
  const staticTicks = [...axis.children];
  let begin = 0;
  let end = length;

  const clock = (tenths) => {
    const whole = Math.round(tenths / TENTHS);
    const [hours, minutes, seconds] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
    const two = (value) => String(value).padStart(2, "0");
    return hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
  };

  // Index of the last of `count` ascending values that is at most `value`; -1 if none is.
  const lastAt = (count, valueOf, value) => {
    let [low, high] = [0, count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (valueOf(middle) <= value) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  const latest = (points, at) => {
    const index = lastAt(points.length, (i) => points[i][0], at);
    return index < 0 ? null : points[index][1];
  };

  const readAt = (at) => {
    const step = latest(run.steps, at);
    const size = latest(run.sizes, at);
    const loss = latest(run.losses, at);
    const parts = [clock(at)];
    if (step !== null) parts.push(`step ${step}`);
    if (size !== null) parts.push(`${size} worker${size === 1 ? "" : "s"}`);
    if (loss !== null) parts.push(`loss ${loss.toFixed(3)}`);
    for (const node of run.nodes) {
      const index = lastAt(node.at.length, (i) => node.at[i], at);
      parts.push(`${node.name} ${run.states[Number(node.state[Math.max(index, 0)])]}`);
    }
    return parts.join(" · ");
  };

  const share = (at) => `${(100 * (at - begin)) / (end - begin)}%`;

  const showCursor = () => {
    const at = Number(slider.value) * TENTHS;
    const visible = at >= begin && at <= end;
    for (const cursor of cursors) {
      cursor.setAttribute("x1", share(at));
      cursor.setAttribute("x2", share(at));
    }
    lanes.classList.toggle("inspected", visible);
    reading.textContent = readAt(at);
    slider.setAttribute("aria-valuetext", reading.textContent);
  };

  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

  const drawTicks = () => {
    if (begin === 0 && end === length) {
      axis.replaceChildren(...staticTicks);
      return;
    }
    const seconds = (end - begin) / TENTHS;
    const step = STEPS.find((candidate) => seconds / candidate <= 6) ?? Math.ceil(seconds / 6 / 86400) * 86400;
    const ticks = [];
    for (let at = Math.ceil(begin / TENTHS / step) * step; at * TENTHS <= end; at += step) {
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("class", "tick");
      text.setAttribute("x", share(at * TENTHS));
      text.setAttribute("y", "14");
      text.textContent = clock(at * TENTHS);
      ticks.push(text);
    }
    axis.replaceChildren(...ticks);
  };

  const zoom = (window, center) => {
    const width = Math.min(Math.max(window, MIN_WINDOW), length);
    begin = Math.min(Math.max(center - width / 2, 0), length - width);
    end = begin + width;
    for (const picture of stretchedPictures) {
      picture.setAttribute("viewBox", `${begin} 0 ${width} ${picture.getAttribute("height")}`);
    }
    for (const element of placedElements) {
      const at = Number(element.dataset.t);
      element.setAttribute("x", share(at));
      element.setAttribute("visibility", at >= begin && at <= end ? "visible" : "hidden");
    }
    drawTicks();
    showCursor();
    byId("zoom-in").disabled = width <= MIN_WINDOW;
    byId("zoom-out").disabled = byId("zoom-all").disabled = width >= length;
  };

  const selectedTime = () => Number(slider.value) * TENTHS;
  slider.addEventListener("input", () => {
    const at = selectedTime();
    if (at < begin || at > end) zoom(end - begin, at);
    else showCursor();
  });
  byId("zoom-in").addEventListener("click", () => zoom((end - begin) / 4, selectedTime()));
  byId("zoom-out").addEventListener("click", () => zoom((end - begin) * 4, selectedTime()));
  byId("zoom-all").addEventListener("click", () => zoom(length, selectedTime()));

  const pointAt = (event) => {
    const plot = event.target.closest?.(".row-plot");
    if (!plot || event.target.closest("a")) return;
    const box = plot.getBoundingClientRect();
    const at = begin + ((event.clientX - box.left) / box.width) * (end - begin);
    slider.value = String(Math.round(Math.min(Math.max(at, 0), length) / TENTHS));
    showCursor();
  };
  lanes.addEventListener("click", pointAt);
  lanes.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse") pointAt(event);
  });

  // All marks share one tab stop (roving tabindex); the arrow keys move the focus between marks in order of time.
  marks.sort((a, b) => timeOf(a) - timeOf(b));
  function timeOf(mark) {
    return Number(mark.querySelector("[data-t]").dataset.t);
  }
  marks.forEach((mark, index) => mark.setAttribute("tabindex", index === 0 ? "0" : "-1"));
  const MOVES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  lanes.addEventListener("keydown", (event) => {
    const index = marks.indexOf(document.activeElement);
    if (index < 0) return;
    const targets = { Home: 0, End: marks.length - 1 };
    const next = event.key in targets ? targets[event.key] : index + (MOVES[event.key] ?? 0);
    if (next === index || !marks[next]) return;
    event.preventDefault();
    marks[index].setAttribute("tabindex", "-1");
    marks[next].setAttribute("tabindex", "0");
    marks[next].focus();
    slider.value = String(Math.round(timeOf(marks[next]) / TENTHS));
    showCursor();
  });

  inspector.hidden = false;
  zoom(length, 0);
  lanes.classList.remove("inspected");
  reading.textContent = "Move the slider, or point at the timeline, to read the values at a second.";
})();
