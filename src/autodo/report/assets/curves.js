// Learning curves: losses and errors by epoch, with the epochs at which something begins.
function drawCurves(root) {
  const { epochs, series, epochs_before, lambda_start } = data.curves;
  if (epochs.length === 0) return;
  const kinds = { error: ["Error", percent], loss: ["Loss", number] };
  for (const [kind, [title, format]] of Object.entries(kinds)) {
    const shown = series.filter((s) => s.name.endsWith(kind));
    if (shown.length === 0) continue;
    const plot = el("div");
    let log = false, wide = 0;
    const draw = () => plot.replaceChildren(curvePlot(wide, shown, title, format, log));
    const legend = el("div", { class: "legend" });
    for (const s of shown) {
      const name = s.name.split(" ")[0];
      const line = svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("path", { class: `curve ${name}`, d: "M0 5H26" }));
      const last = s.values[s.values.length - 1];
      legend.append(el("span", {}, line, `${name}, ${format(last)} at the end`));
    }
    const scale = toggle("logarithmic", false, (on) => { log = on; draw(); });
    root.append(el("div", { class: "panel" }, el("h3", {}, `${title} by epoch`, scale), plot, legend));
    onWidth(plot, (width) => { wide = width; draw(); });
  }

  function curvePlot(width, shown, title, format, log) {
    const height = 250, left = 46, right = 10, top = 24, bottom = 26;
    const values = shown.flatMap((s) => s.values.filter((v) => v !== null));
    const high = Math.max(...values) * 1.04 || 1;
    // Zero has no logarithm: it is drawn on the floor, which is below the least that is above it.
    const low = log ? Math.min(high / 2, ...values.filter((v) => v > 0)) / 1.3 : 0;
    const part = (v) => (log ? Math.log(Math.max(v, low) / low) / Math.log(high / low) : v / high);
    const first = epochs[0], last = Math.max(epochs[epochs.length - 1], first + 1);
    const x = (e) => left + ((e - first) / (last - first)) * (width - left - right);
    const y = (v) => height - bottom - part(v) * (height - top - bottom);
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: "0", role: "img",
      "aria-label": `${title} by epoch. ${shown.map((s) => `${s.name} ends at ${format(s.values[s.values.length - 1])}`).join(", ")}. Left and right arrows step through the epochs.` });
    if (epochs_before > 0) {
      const end = x(Math.min(epochs_before + 0.5, last));
      drawn.append(svg("rect", { class: "phase", x: left, y: top, width: Math.max(0, end - left), height: height - top - bottom }));
      drawn.append(svg("text", { class: "phase-text", x: left + 4, y: top - 9 }, end - left > 100 ? "networks before" : "before"));
    }
    for (const v of log ? logTicks(low, high) : ticks(0, high, 4)) {
      drawn.append(svg("line", { class: "gridline", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
      drawn.append(svg("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, kindTick(v)));
    }
    for (const e of ticks(first, last, Math.min(8, width / 70)).filter(Number.isInteger)) {
      drawn.append(svg("text", { x: x(e), y: height - 8, "text-anchor": "middle" }, e));
    }
    if (lambda_start !== null) {
      const at = x(Math.max(first, lambda_start + 0.5));
      drawn.append(svg("line", { class: "begin", x1: at, x2: at, y1: top - 4, y2: height - bottom }));
      const room = width - right - at > 110;
      drawn.append(svg("text", { class: "begin-text", x: at + (room ? 4 : -4), y: top - 9, "text-anchor": room ? "start" : "end" }, room ? "λ is learned" : "λ"));
    }
    for (const s of shown) {
      let path = "", down = false;
      s.values.forEach((v, k) => {
        if (v === null) { down = false; return; }
        path += `${down ? "L" : "M"}${x(epochs[k]).toFixed(1)} ${y(v).toFixed(1)}`;
        down = true;
      });
      drawn.append(svg("path", { class: `curve ${s.name.split(" ")[0]}`, d: path }));
    }
    const cursor = drawn.appendChild(svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" }));
    let at = epochs.length - 1;
    const point = (k, clientY) => {
      at = Math.max(0, Math.min(epochs.length - 1, k));
      const px = x(epochs[at]);
      cursor.setAttribute("x1", px);
      cursor.setAttribute("x2", px);
      cursor.setAttribute("visibility", "visible");
      const box = drawn.getBoundingClientRect();
      showTip(box.left + (px * box.width) / width, clientY ?? box.top + 40, el("b", {}, `epoch ${epochs[at]}`),
        ...lines(...shown.map((s) => `${s.name} ${s.values[at] === null ? "–" : format(s.values[at])}`)));
    };
    const leave = () => { cursor.setAttribute("visibility", "hidden"); hideTip(); };
    drawn.addEventListener("pointermove", (event) => {
      const box = drawn.getBoundingClientRect();
      const e = first + (((event.clientX - box.left) * width) / box.width - left) / (width - left - right) * (last - first);
      point(Math.round(e - first), event.clientY);
    });
    drawn.addEventListener("pointerleave", leave);
    drawn.addEventListener("blur", leave);
    drawn.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { event.preventDefault(); point(at + step); }
    });
    return drawn;

    function kindTick(v) {
      return format === percent ? `${+(100 * v).toPrecision(3)}%` : `${+v.toPrecision(3)}`;
    }
  }
}
