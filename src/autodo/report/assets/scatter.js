// A plot of up to 100,000 points on a canvas: zoom, pan, hover, keyboard.
//
// x, y: typed arrays in [0, 1], y upwards; group: class of each point, for its colour; ring and cross: which
// points carry a mark (root has a row of tools, which the buttons join); describe(i): what is said of a point; axes: null or {x: [[at, text]], y: ..., names}.
function scatter(root, { x, y, group, ring, cross, describe, axes, label }) {
  const total = x.length;
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": `${label} Arrow keys move the view, plus and minus zoom, 0 resets, n and p step through the marked points.` });
  const screen = canvas.getContext("2d", { alpha: false });
  const layer = document.createElement("canvas");
  const context = layer.getContext("2d", { alpha: false, willReadFrequently: true });
  const MANY = 20000;
  const status = el("p", { class: "sr", role: "status" });
  const zooms = el("div", { class: "zoom" },
    el("button", { "aria-label": "zoom in", onclick: () => zoom(1.6) }, "+"),
    el("button", { "aria-label": "zoom out", onclick: () => zoom(1 / 1.6) }, "−"),
    el("button", { onclick: () => reset() }, "reset"));
  root.querySelector(".tools").append(el("span", { class: "grow" }), zooms);
  root.append(el("div", { class: "scatter" }, canvas), status);
  root.append(el("p", { class: "hint" }, "Click into the plot, then scroll or pinch to zoom and drag to move; or use + − 0, the arrow keys, and n and p for the marked points."));

  const margin = axes ? { left: 46, right: 14, top: 14, bottom: 40 } : { left: 14, right: 14, top: 14, bottom: 14 };
  let width = 0, height = 0, scale = 1, left = 0, top = 0;  // the view: left and top in [0, 1] of the data
  let visible = () => true, shown = new Uint32Array(0), marked = [], at = -1, pending = false, stale = true;

  // Cells of the plane hold the points inside, so that the nearest is found among a few.
  const SIDE = 128;
  const cellOf = (i) => Math.min(SIDE - 1, Math.floor(y[i] * SIDE)) * SIDE + Math.min(SIDE - 1, Math.floor(x[i] * SIDE));
  let starts = new Uint32Array(0), ordered = new Uint32Array(0);

  function select(test) {
    visible = test;
    const found = [];
    for (let i = 0; i < total; i++) if (visible(i)) found.push(i);
    // By class: setting a colour costs more than drawing a point.
    shown = Uint32Array.from(found).sort((a, b) => group[a] - group[b] || a - b);
    marked = found.filter((i) => ring[i] || cross[i]);
    starts = new Uint32Array(SIDE * SIDE + 1);
    for (const i of shown) starts[cellOf(i) + 1]++;
    for (let k = 0; k < SIDE * SIDE; k++) starts[k + 1] += starts[k];
    const next = starts.slice();
    ordered = new Uint32Array(shown.length);
    for (const i of shown) ordered[next[cellOf(i)]++] = i;
    at = -1;
    refresh();
    return found.length;
  }

  const inner = () => [width - margin.left - margin.right, height - margin.top - margin.bottom];
  const toX = (v) => margin.left + (v - left) * scale * inner()[0];
  const toY = (v) => margin.top + (1 - v - top) * scale * inner()[1];
  const fromX = (px) => (px - margin.left) / (scale * inner()[0]) + left;
  const fromY = (py) => 1 - (py - margin.top) / (scale * inner()[1]) - top;

  // The view, the selection or the theme changed: the points are painted anew.
  function refresh() { stale = true; request(); }

  function request() {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; draw(); });
  }

  // Points are painted on a layer of their own, so that hovering only lays a ring over it.
  function draw() {
    const ratio = devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = layer.width = w;
      canvas.height = layer.height = h;
      stale = true;
    }
    if (stale) paint(ratio);
    stale = false;
    screen.setTransform(1, 0, 0, 1, 0, 0);
    screen.drawImage(layer, 0, 0);
    if (at >= 0) {
      screen.setTransform(ratio, 0, 0, ratio, 0, 0);
      screen.strokeStyle = theme.text;
      screen.lineWidth = 2.5;
      screen.beginPath();
      screen.arc(toX(x[at]), toY(y[at]), pointSize() + 5, 0, 7);
      screen.stroke();
    }
  }

  const pointSize = () => Math.max(1.5, Math.min(7, (Math.sqrt(40000 / Math.max(shown.length, 1)) + 1) * scale ** 0.25));

  function paint(ratio) {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = theme.surface;
    context.fillRect(0, 0, width, height);
    if (axes) drawAxes();
    if (shown.length > MANY) paintPixels(ratio);
    context.save();
    context.beginPath();
    context.rect(margin.left - 6, margin.top - 6, inner()[0] + 12, inner()[1] + 12);
    context.clip();
    if (shown.length <= MANY) paintSquares();
    paintMarks();
    context.restore();
  }

  function paintSquares() {
    const size = pointSize();
    context.globalAlpha = 0.8;
    let before = -1;
    for (const i of shown) {
      const px = toX(x[i]), py = toY(y[i]);
      if (px < -9 || py < -9 || px > width + 9 || py > height + 9) continue;
      if (group[i] !== before) context.fillStyle = colour((before = group[i]));
      context.fillRect(px - size / 2, py - size / 2, size, size);
    }
    context.globalAlpha = 1;
  }

  // 100,000 calls of fillRect took 122 ms a frame where mixing the pixels takes 24 (no GPU).
  function paintPixels(ratio) {
    const image = context.getImageData(0, 0, layer.width, layer.height);
    const pixels = image.data, stride = layer.width;
    const side = Math.max(1, Math.round(pointSize() * ratio));
    const colours = classes.map((_, c) => rgb(colour(c)));
    const [iw, ih] = inner();
    const [kx, ky] = [scale * iw * ratio, scale * ih * ratio];
    const [ox, oy] = [(margin.left - left * scale * iw) * ratio - side / 2, (margin.top + (1 - top) * scale * ih) * ratio - side / 2];
    const [x0, x1] = [Math.ceil(margin.left * ratio), Math.floor((width - margin.right) * ratio) - side];
    const [y0, y1] = [Math.ceil(margin.top * ratio), Math.floor((height - margin.bottom) * ratio) - side];
    for (const i of shown) {
      const px = Math.round(x[i] * kx + ox), py = Math.round(oy - y[i] * ky);
      if (px < x0 || py < y0 || px > x1 || py > y1) continue;
      const mix = colours[group[i]];
      for (let row = py; row < py + side; row++) {
        for (let k = (row * stride + px) * 4, end = k + side * 4; k < end; k += 4) {
          pixels[k] += (mix[0] - pixels[k]) * 0.55;
          pixels[k + 1] += (mix[1] - pixels[k + 1]) * 0.55;
          pixels[k + 2] += (mix[2] - pixels[k + 2]) * 0.55;
        }
      }
    }
    context.putImageData(image, 0, 0);
  }

  function paintMarks() {
    const r = Math.max(2.6, pointSize() * 0.8);
    // Rings that would cover one another tell nothing; zooming brings them out.
    const rings = marked.length / scale ** 2 < (width * height) / 600;
    context.lineWidth = 1.1;
    context.globalAlpha = 0.85;
    context.strokeStyle = theme.text;
    context.beginPath();
    for (const i of marked) {
      if (!cross[i] && !rings) continue;
      const px = toX(x[i]), py = toY(y[i]);
      if (px < -9 || py < -9 || px > width + 9 || py > height + 9) continue;
      if (cross[i]) {
        context.moveTo(px - r, py - r); context.lineTo(px + r, py + r);
        context.moveTo(px - r, py + r); context.lineTo(px + r, py - r);
      } else {
        context.moveTo(px + r, py); context.arc(px, py, r, 0, 7);
      }
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  function drawAxes() {
    const [w, h] = inner();
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = theme.quiet;
    context.strokeStyle = theme.grid;
    context.lineWidth = 1;
    context.beginPath();
    context.textAlign = "center";
    for (const [v, text] of axes.x) {
      const px = toX(v);
      if (px < margin.left - 1 || px > margin.left + w + 1) continue;
      context.moveTo(px, margin.top); context.lineTo(px, margin.top + h);
      context.fillText(text, px, margin.top + h + 15);
    }
    context.textAlign = "right";
    for (const [v, text] of axes.y) {
      const py = toY(v);
      if (py < margin.top - 1 || py > margin.top + h + 1) continue;
      context.moveTo(margin.left, py); context.lineTo(margin.left + w, py);
      context.fillText(text, margin.left - 7, py + 4);
    }
    context.stroke();
    context.textAlign = "center";
    context.fillText(axes.names[0], margin.left + w / 2, height - 6);
    context.save();
    context.translate(13, margin.top + h / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(axes.names[1], 0, 0);
    context.restore();
  }

  function nearest(px, py, reach) {
    const [cx, cy] = [fromX(px) * SIDE, fromY(py) * SIDE];
    const [rx, ry] = [(reach / (scale * inner()[0])) * SIDE + 1, (reach / (scale * inner()[1])) * SIDE + 1];
    const clamp = (v) => Math.max(0, Math.min(SIDE - 1, Math.floor(v)));
    let best = -1, distance = reach * reach;
    for (let row = clamp(cy - ry); row <= clamp(cy + ry); row++) {
      for (let k = starts[row * SIDE + clamp(cx - rx)]; k < starts[row * SIDE + clamp(cx + rx) + 1]; k++) {
        const i = ordered[k];
        const d = (toX(x[i]) - px) ** 2 + (toY(y[i]) - py) ** 2;
        if (d < distance) { best = i; distance = d; }
      }
    }
    return best;
  }

  function clampView() {
    const room = 1 - 1 / scale;
    left = Math.max(0, Math.min(room, left));
    top = Math.max(0, Math.min(room, top));
    // A finger scrolls the page until the plot is zoomed.
    canvas.style.touchAction = scale > 1 ? "none" : "pan-y";
    refresh();
  }

  function zoom(factor, px = margin.left + inner()[0] / 2, py = margin.top + inner()[1] / 2) {
    const [vx, vy] = [fromX(px), 1 - fromY(py)];
    scale = Math.max(1, Math.min(60, scale * factor));
    left = vx - (px - margin.left) / (scale * inner()[0]);
    top = vy - (py - margin.top) / (scale * inner()[1]);
    clampView();
  }
  function reset() { scale = 1; left = top = 0; clampView(); }
  function pan(dx, dy) { left -= dx / (scale * inner()[0]); top -= dy / (scale * inner()[1]); clampView(); }

  // Moves the view so that a point outside is in the middle.
  function show(i) {
    const inside = (v, from) => v >= from && v <= from + 1 / scale;
    if (inside(x[i], left) && inside(1 - y[i], top)) return;
    left = x[i] - 0.5 / scale;
    top = 1 - y[i] - 0.5 / scale;
    clampView();
  }

  function tell(i, speak) {
    at = i;
    request();
    if (i < 0) { hideTip(); return; }
    const box = canvas.getBoundingClientRect();
    const content = describe(i);
    showTip(box.left + toX(x[i]), box.top + toY(y[i]), ...content);
    if (speak) status.textContent = tip.textContent;
  }

  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.focus({ preventScroll: true });
    fingers.set(event.pointerId, event);
    if (scale > 1 || event.pointerType === "mouse") canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const old = fingers.get(event.pointerId);
    if (old && fingers.size === 2) {
      const other = [...fingers.entries()].find(([id]) => id !== event.pointerId)[1];
      const apart = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
      zoom(apart(event, other) / Math.max(1, apart(old, other)), (event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top);
    } else if (old && scale > 1) {
      pan(event.clientX - old.clientX, event.clientY - old.clientY);
    }
    if (old) fingers.set(event.pointerId, event);
    if (fingers.size < 2) tell(nearest(event.clientX - box.left, event.clientY - box.top, 14), false);
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => tell(-1));
  canvas.addEventListener("blur", () => tell(-1));
  canvas.addEventListener("dblclick", (event) => {
    const box = canvas.getBoundingClientRect();
    zoom(2, event.clientX - box.left, event.clientY - box.top);
  });
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;  // the page scrolls on
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * 0.0016), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  let stepped = -1;
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (moves[event.key] && scale > 1) pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1.4);
    else if (event.key === "-") zoom(1 / 1.4);
    else if (event.key === "0") reset();
    else if ((event.key === "n" || event.key === "p") && marked.length) {
      stepped = (stepped + (event.key === "n" ? 1 : -1) + marked.length) % marked.length;
      show(marked[stepped]);
      tell(marked[stepped], true);
    } else return;
    event.preventDefault();
  });

  new ResizeObserver(() => {
    const box = canvas.getBoundingClientRect();
    if (box.width) { width = box.width; height = box.height; draw(); }
  }).observe(canvas);
  redraws.push(() => { stale = true; draw(); });
  const box = canvas.getBoundingClientRect();
  [width, height] = [box.width, box.height];
  clampView();
  return { select };
}
