// Charts (SVG, and a canvas for the cells of a heat map) and the merge explorer, without any library.
// Everything shown comes from the JSON in the page; class names are text, never markup.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const summary = JSON.parse($("summary").textContent);
  const { classes, matrix, joint, merge_path: path } = summary;
  const unit = summary.how === "counted votes" ? "items" : "rows";
  const LABEL = 22, SHORT = 12; // characters of a name on an axis, on wide and on narrow screens
  const ROOM = 13; // pixels that a name needs on an axis
  const VALUES = 12; // up to this many classes the numbers stand in the cells
  const SCALES = { // colours of the rates, from none to the largest
    light: [[255, 247, 236], [253, 212, 158], [252, 141, 89], [215, 48, 31], [127, 0, 0]],
    dark: [[23, 27, 38], [75, 35, 67], [160, 58, 75], [234, 118, 58], [255, 228, 143]],
  };
  const bend = Math.cbrt; // small rates must show beside large ones

  // ------------------------------------------------------------------ words

  const percent = (p) => {
    if (p > 0 && p < 0.0001) return "less than 0.01%";
    if (p === 0 || p === 1) return 100 * p + "%";
    return (100 * p).toFixed(p < 0.01 || p > 0.99 ? 2 : 1) + "%";
  };
  const between = (low, high) => (low === null || high === null ? "" : ` (${percent(low)} to ${percent(high)})`);
  const named = (name) => (name.trim() ? name : "(empty name)");
  // Cut by characters as people see them, and kept from turning the direction of what stands around it.
  const cut = (name, longest) => {
    const letters = Array.from(named(name).replace(/\s+/g, " "));
    if (letters.length <= longest) return letters.join("");
    const end = Math.floor((longest - 1) / 2); // both ends tell names apart
    return letters.slice(0, longest - 1 - end).join("") + "\u2026" + letters.slice(letters.length - end).join("");
  };
  const apart = (name, longest) => "\u2068" + cut(name, longest) + "\u2069";
  // In a sentence a name of several words stands in quotes.
  const inWords = (name, longest) => {
    const simple = /^[\p{L}\p{N}_.+-]+$/u.test(name) || !name.trim();
    return simple ? apart(name, longest) : "\u201c" + apart(name, longest) + "\u201d";
  };
  const end = (which, i, j) => (summary[which] === null ? null : summary[which][i][j]);
  const visible = (id) => printing || $(id).offsetParent !== null; // not inside a folded section
  const count = (n) => Math.round(n).toLocaleString("en");

  function cellWords(i, j) {
    const of = `Labelled ${inWords(classes[i], 60)}, seen again as ${i === j ? "the same" : inWords(classes[j], 60)}: `;
    const rows = summary.counts === null ? "" : `; ${count(summary.counts[i])} ${unit} of ${inWords(classes[i], 60)}`;
    return of + percent(matrix[i][j]) + between(end("low", i, j), end("high", i, j)) + rows + ".";
  }

  function cellTip(i, j) {
    const lines = [`${apart(classes[i], 50)} \u2192 ${apart(classes[j], 50)}`, `rate ${percent(matrix[i][j])}`];
    const interval = between(end("low", i, j), end("high", i, j));
    if (interval) lines.push(`interval${interval}`);
    if (i !== j) lines.push(`the other way ${percent(matrix[j][i])}`);
    if (summary.counts !== null) lines.push(`${unit} ${count(summary.counts[i])} \u2192 ${count(summary.counts[j])}`);
    return lines.join("\n");
  }

  // ------------------------------------------------------------------ colours

  const media = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return !printing && (chosen ? chosen === "dark" : media.matches);
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  function shade(t) { // the colour at 0 to 1 of the scale
    const stops = SCALES[isDark() ? "dark" : "light"];
    const place = Math.min(Math.max(t, 0), 1) * (stops.length - 1), k = Math.min(Math.floor(place), stops.length - 2);
    return stops[k].map((from, c) => Math.round(from + (place - k) * (stops[k + 1][c] - from)));
  }
  const css = (rgb) => `rgb(${rgb.join(",")})`;
  const bright = (rgb) => 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] > 140;

  // ------------------------------------------------------------------ drawing

  function svg(tag, attributes = {}, text = null) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== null) made.textContent = text;
    return made;
  }
  const sheet = (width, height) => svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const room = (div, most) => {
    const paper = div.parentElement.tagName === "FIGURE" ? 300 : 640; // pixels; two figures stand side by side
    return Math.max(260, Math.min(printing ? paper : div.clientWidth, most));
  };
  const line = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join("L");

  // Round numbers from 0 to at least `most`.
  function roundNumbers(most, wanted = 5) {
    const raw = (most || 1) / wanted, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
    const numbers = [];
    for (let k = 0; k * step < (most || 1) + step * 0.001; k++) numbers.push(k * step);
    return numbers;
  }
  const inPercent = (p) => `${Number((100 * p).toPrecision(6))}%`;

  // A chart with axes: x and y give the pixels of a value, ticks are [value, text].
  function chart(div, { width, height, left, x, y, xticks, yticks, xtitle, ytitle, grid = true }) {
    const page = sheet(width, height), bottom = height - 42, right = width - 15;
    const rule = { stroke: colour("line"), "stroke-width": 1 }, words = { fill: colour("ink"), "font-size": 12 };
    for (const [value, text] of xticks) {
      if (grid) page.append(svg("line", { ...rule, x1: x(value), x2: x(value), y1: 10, y2: bottom }));
      page.append(svg("text", { ...words, x: x(value), y: bottom + 16, "text-anchor": "middle" }, text));
    }
    for (const [value, text] of yticks) {
      if (ytitle !== null) page.append(svg("line", { ...rule, x1: left, x2: right, y1: y(value), y2: y(value) }));
      page.append(svg("text", { ...words, x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "ytick",
        ...(ytitle === null ? { "font-size": 11 } : {}) }, text));
    }
    const quiet = { ...words, fill: colour("quiet"), "text-anchor": "middle" };
    page.append(svg("text", { ...quiet, x: (left + right) / 2, y: height - 6 }, xtitle));
    if (ytitle) page.append(svg("text", { ...quiet, transform: `translate(12,${bottom / 2}) rotate(-90)` }, ytitle));
    div.replaceChildren(page);
    return page;
  }
  const stroke = (points, paint, width, dash = "") =>
    svg("path", { d: line(points), fill: "none", stroke: paint, "stroke-width": width, "stroke-dasharray": dash });
  function dot(x, y, r, fill, tip, step = null) { // with room around it to be met by a finger
    const made = svg("circle", { cx: x, cy: y, r, fill, stroke: "transparent", "stroke-width": 10 });
    if (tip) made.dataset.tip = tip;
    if (step !== null) made.dataset.step = step;
    return made;
  }

  // ------------------------------------------------------------------ tips

  function showTip(words, event) {
    const tip = $("tip");
    tip.hidden = words === null;
    if (words === null) return;
    tip.textContent = words;
    const box = tip.getBoundingClientRect(), gap = 14;
    const x = event.clientX + gap + box.width > window.innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
    const y = event.clientY + gap + box.height > window.innerHeight ? event.clientY - gap - box.height : event.clientY + gap;
    tip.style.left = Math.max(4, x) + "px";
    tip.style.top = Math.max(4, y) + "px";
  }
  function startTips() {
    for (const div of document.querySelectorAll(".chart")) {
      div.addEventListener("pointermove", (event) => {
        const over = event.target.closest("[data-tip]");
        if (over) showTip(over.dataset.tip, event);
        else if (div.heat && div.heat.at(event)) showTip(div.heat.tip(...div.heat.at(event)), event);
        else showTip(null);
      });
      div.addEventListener("pointerleave", () => showTip(null));
    }
  }

  // ------------------------------------------------------------------ heat maps

  // Places of the names along an axis that shows `from` to `to`: as many as there is room for.
  function namePlaces(from, to, pixels) {
    const step = Math.max(1, Math.ceil(((to - from) * ROOM) / pixels)), places = [];
    for (let k = Math.ceil(from / step) * step; k < to; k += step) places.push(k);
    return places;
  }

  // S with names along both sides. Dragging over cells zooms, a double click goes back (div.view is what is shown).
  function drawHeat(div, S, names, tip) {
    if (!div.view || div.names !== names.join("\n")) div.view = { top: 0, left: 0, size: S.length };
    div.names = names.join("\n");
    const n = S.length, { top: first, left: start, size } = div.view;
    const side = room(div, Math.max(400, Math.min(760, 250 + 90 * n))), narrow = side < 480;
    const label = room(div, 760) < 480 ? SHORT : LABEL, longest = Math.max(...names.map((name) => cut(name, label).length));
    const margin = Math.min(side * 0.34, 34 + 6.6 * longest), bar = n > 1 && !narrow ? 86 : 8;
    const length = side - margin - bar, cell = length / size;
    const upright = size * longest * 6.8 > length, below = upright ? margin : 44;
    const largest = Math.max(...S.map((row, i) => Math.max(...row.filter((_, j) => i !== j), 0))) || 1;
    const paint = (i, j) => (i === j ? null : shade(bend(S[i][j]) / bend(largest)));

    const canvas = document.createElement("canvas"), dense = printing ? 3 : window.devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(length * dense);
    Object.assign(canvas.style, { left: margin + "px", top: "8px", width: length + "px", height: length + "px" });
    const pen = canvas.getContext("2d"), gap = size <= 60 ? 1 : 0, own = colour("own");
    pen.scale(dense, dense);
    for (let r = 0; r < size; r++) for (let c = 0; c < size; c++) {
      const rgb = paint(first + r, start + c);
      pen.fillStyle = rgb ? css(rgb) : own;
      pen.fillRect(c * cell, r * cell, cell - gap, cell - gap);
    }

    const page = sheet(side, length + 8 + below), ink = colour("ink");
    if (size <= VALUES && cell >= 34) for (let r = 0; r < size; r++) for (let c = 0; c < size; c++) {
      const rate = S[first + r][start + c], rgb = paint(first + r, start + c);
      page.append(svg("text", { x: margin + (c + 0.5) * cell, y: 8 + (r + 0.5) * cell + 4, "text-anchor": "middle",
        "font-size": cell < 44 ? 10 : 12, fill: rgb ? (bright(rgb) ? "#1f2a44" : "#ffffff") : ink },
        (100 * rate).toFixed(rate < 0.1 ? 2 : 1)));
    }
    const small = { fill: ink, "font-size": 11 }, quiet = { fill: colour("quiet"), "font-size": 12, "text-anchor": "middle" };
    for (const k of namePlaces(first, first + size, length))
      page.append(svg("text", { ...small, x: margin - 5, y: 8 + (k - first + 0.5) * cell + 4, "text-anchor": "end",
        class: "ytick" }, apart(names[k], label)));
    for (const k of namePlaces(start, start + size, length)) {
      const x = margin + (k - start + 0.5) * cell, y = length + 12;
      page.append(svg("text", upright ? { ...small, transform: `translate(${x + 4},${y}) rotate(-90)`, "text-anchor": "end" }
        : { ...small, x, y: y + 10, "text-anchor": "middle" }, apart(names[k], label)));
    }
    page.append(svg("text", { ...quiet, x: margin + length / 2, y: length + below + 4 }, "seen again as"));
    page.append(svg("text", { ...quiet, transform: `translate(11,${8 + length / 2}) rotate(-90)` }, "labelled"));
    if (bar > 8) drawScale(page, margin + length + 18, length, largest);
    div.replaceChildren(canvas, page);
    div.heat = { S, tip, cell, at: (event) => {
      const box = canvas.getBoundingClientRect();
      const c = Math.floor((event.clientX - box.left) / cell), r = Math.floor((event.clientY - box.top) / cell);
      return r >= 0 && c >= 0 && r < size && c < size ? [first + r, start + c] : null;
    } };
  }

  function drawScale(page, x, length, largest) {
    const steps = 60, step = length / steps, y = (rate) => 8 + length * (1 - bend(rate) / bend(largest));
    for (let k = 0; k < steps; k++)
      page.append(svg("rect", { x, y: 8 + length - (k + 1) * step, width: 14, height: step + 0.5, fill: css(shade((k + 0.5) / steps)) }));
    let last = Infinity;
    for (const rate of [0, 0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 1].filter((v) => v < largest).concat(largest)) {
      if (last - y(rate) < 14 || (rate !== largest && y(rate) - y(largest) < 14)) continue;
      last = y(rate);
      page.append(svg("text", { x: x + 19, y: last + 4, "font-size": 11, fill: colour("ink") }, percent(rate).replace("less than ", "<")));
    }
  }

  // A click names the pair; a drag over several cells zooms in on them.
  function startHeat(div, redraw, pick = null) {
    let from = null;
    div.addEventListener("pointerdown", (event) => {
      from = event.pointerType === "mouse" ? div.heat.at(event) : null;
      if (from) event.preventDefault();
    });
    div.addEventListener("pointerup", (event) => {
      const to = div.heat.at(event);
      if (from && to) {
        const size = Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1])) + 1, last = div.heat.S.length - size;
        if (size > 1 && size < div.view.size) {
          div.view = { top: Math.min(from[0], to[0], last), left: Math.min(from[1], to[1], last), size };
          redraw();
        }
      }
      from = null;
    });
    div.addEventListener("click", (event) => { if (pick && div.heat.at(event)) pick(...div.heat.at(event)); });
    div.addEventListener("dblclick", () => { div.view = null; redraw(); });
  }

  // ------------------------------------------------------------------ what unlimited rows would leave

  function drawLimit() {
    const { curve, band, low, high, pber } = summary.limit, div = $("limit");
    const last = curve.rows[curve.rows.length - 1], edge = 200 * last, ends = [curve.rows[0] / 1.3, edge * 2.2].map(Math.log10);
    const width = room(div, 760), narrow = width < 420, height = narrow ? 230 : 340, left = 48;
    const most = 1.05 * Math.max(high, ...curve.pber.map((p, i) => p + (curve.stderr[i] || 0)));
    const x = (n) => left + (width - 15 - left) * (Math.log10(n) - ends[0]) / (ends[1] - ends[0]);
    const y = (p) => 10 + (height - 52) * (1 - p / most);
    const shown = curve.rows.filter((_, i) => !narrow || (curve.rows.length - 1 - i) % 2 === 0);
    const page = chart(div, { width, height, left, x, y, xtitle: "training rows", ytitle: "",
      xticks: [...shown.map((n) => [n, count(n)]), [edge, "unlimited"]],
      yticks: roundNumbers(most).filter((p) => p <= most).map((p) => [p, inPercent(p)]) });
    const accent = colour("accent"), ink = colour("ink"), points = (list, rows) => rows.map((n, i) => [x(n), y(list[i])]);
    if (band) {
      const edges = [...points(band.high, band.rows), ...points(band.low, band.rows).reverse()];
      page.append(svg("path", { d: line(edges) + "Z", fill: accent, "fill-opacity": 0.18 }));
      page.append(stroke(points(band.middle, band.rows), accent, 1.5, "5 4"));
    }
    page.append(stroke(points(curve.pber, curve.rows), ink, 2));
    curve.rows.forEach((n, i) => {
      const e = curve.stderr[i];
      if (e !== null) page.append(stroke([[x(n), y(curve.pber[i] - e)], [x(n), y(curve.pber[i] + e)]], colour("quiet"), 1.2));
      page.append(dot(x(n), y(curve.pber[i]), 4, ink, `${count(n)} rows: ${percent(curve.pber[i])}`));
    });
    page.append(stroke([[x(edge), y(low)], [x(edge), y(high)]], accent, 3));
    for (const p of [low, high]) page.append(stroke([[x(edge) - 7, y(p)], [x(edge) + 7, y(p)]], accent, 3));
    page.append(dot(x(edge), y(band ? pber : (low + high) / 2), band ? 5 : 0, accent, `unlimited rows:${between(low, high)}`));
  }

  // ------------------------------------------------------------------ S

  const order = () => ($("order") && $("order").value === "leaf" ? summary.leaf_order : classes.map((_, k) => k));

  function drawMatrix() {
    const shown = order();
    drawHeat($("heatmap"), shown.map((i) => shown.map((j) => matrix[i][j])), shown.map((k) => classes[k]),
      (r, c) => cellTip(shown[r], shown[c]));
  }

  function lookUp() {
    $("pair-said").textContent = cellWords(Number($("pair-class").value), Number($("pair-other").value));
  }

  function startLookUp() {
    for (const id of ["pair-class", "pair-other"]) {
      classes.forEach((name, k) => $(id).add(new Option(cut(name, 60), k)));
      $(id).addEventListener("change", lookUp);
    }
    let best = [0, 1];
    const last = summary.complete ? classes.length : classes.length - 1; // behind it stand all others as one
    for (let i = 0; i < last; i++) for (let j = 0; j < last; j++)
      if (i !== j && matrix[i][j] > matrix[best[0]][best[1]]) best = [i, j];
    [$("pair-class").value, $("pair-other").value] = best;
    lookUp();
    startHeat($("heatmap"), drawMatrix, (r, c) => {
      const shown = order();
      [$("pair-class").value, $("pair-other").value] = [shown[r], shown[c]];
      lookUp();
    });
  }

  // ------------------------------------------------------------------ merging

  // Groups after `step` merges, in the order of the tree; each is a list of class numbers, its first member first.
  function groupsAt(step) {
    const members = classes.map((_, k) => [k]);
    for (let s = 1; s <= step; s++) {
      members[path.first[s]].push(...members[path.second[s]]);
      members[path.second[s]] = null;
    }
    const place = [];
    path.tree_order.forEach((k, rank) => { place[k] = rank; });
    return members.filter((group) => group).sort((a, b) => place[a[0]] - place[b[0]]);
  }

  // B' = A^T B A and S' = B' / its row sums, as CollisionMatrix.merge has it.
  function mergedMatrix(groups) {
    const B = groups.map((rows) => groups.map((columns) => {
      let sum = 0;
      for (const i of rows) for (const j of columns) sum += joint[i][j];
      return sum;
    }));
    return B.map((row) => { const total = row.reduce((a, b) => a + b, 0); return row.map((v) => v / total); });
  }

  const groupName = (group, most = 4) => {
    const shown = group.length <= most + 1 ? group : group.slice(0, most);
    const names = shown.map((k) => cut(classes[k], LABEL)).join(" + ");
    return shown === group ? names : `${names} + ${group.length - most} more`;
  };

  function mergeWords(step) {
    const n = path.n_groups[step];
    let said = `${n} ${n === 1 ? "group" : step ? "groups" : "classes"}. ` +
      `If labelled again, ${percent(path.pber[step])} of the inputs would be in another one` +
      `${between(path.low[step], path.high[step])}`;
    if (step) said += `, down from ${percent(path.pber[0])}`;
    said += path.limit[step] === null ? "." : `; with unlimited rows about ${percent(path.limit[step])}.`;
    if (step) {
      const before = groupsAt(step - 1), find = (head) => before.find((group) => group.includes(head));
      said += ` Merged last: ${apart(groupName(find(path.first[step])), 120)} with ` +
        `${apart(groupName(find(path.second[step])), 120)}.`;
    }
    return said;
  }

  function listGroups(groups) {
    const items = groups.filter((group) => group.length > 1).map((group) => {
      const item = document.createElement("li");
      item.dir = "auto";
      const names = group.slice(0, 30).map((k) => cut(classes[k], 60)).join(", ");
      item.textContent = `${names}${group.length > 30 ? ` and ${group.length - 30} more` : ""}`;
      return item;
    });
    const alone = groups.filter((group) => group.length === 1).length;
    const rest = document.createElement("li");
    rest.textContent = items.length === 0 ? "Nothing is merged yet." :
      alone ? `${alone} ${alone === 1 ? "class stays" : "classes stay"} alone.` : "No class stays alone.";
    $("groups").replaceChildren(...items, rest);
  }

  const stepWords = (step) => `${path.n_groups[step]} groups: ${percent(path.pber[step])} another label`;

  function drawCurve(step) {
    const div = $("curve"), width = room(div, 560), height = 300, left = 62, { n_groups, pber, low, high, limit } = path;
    const most = 1.05 * Math.max(...pber, ...high.map((p) => p || 0), 1e-9), k = n_groups[0], fewest = n_groups[n_groups.length - 1];
    const x = (n) => left + (width - 30 - left) * (k === fewest ? 0.5 : (k - n) / (k - fewest)), y = (p) => 10 + (height - 52) * (1 - p / most);
    const every = Math.max(1, Math.ceil((k - fewest) / (width < 400 ? 6 : 10)));
    const page = chart(div, { width, height, left, x, y, xtitle: "groups", ytitle: "another label", grid: false,
      xticks: n_groups.filter((n) => (k - n) % every === 0).map((n) => [n, count(n)]),
      yticks: roundNumbers(most).filter((p) => p <= most).map((p) => [p, inPercent(p)]) });
    const points = (list) => list.map((p, s) => [x(n_groups[s]), y(p)]), paint = colour("bar");
    if (low[0] !== null && low.length > 1 && low[1] !== null)
      page.append(svg("path", { d: line([...points(high), ...points(low).reverse()]) + "Z", fill: paint, "fill-opacity": 0.2 }));
    if (limit[0] !== null) page.append(stroke(points(limit), colour("accent"), 1.5, "5 4"));
    page.append(stroke(points(pber), paint, 2));
    page.append(dot(x(n_groups[step]), y(pber[step]), 7, colour("accent"), null));
    pber.forEach((p, s) => page.append(dot(x(n_groups[s]), y(p), k > 60 ? 1.5 : 3.5, s === step ? colour("accent") : paint,
      stepWords(s) + (limit[s] === null ? "" : `\nunlimited rows: ${percent(limit[s])}`), s)));
  }

  function drawTree(step) {
    const div = $("tree"), width = room(div, 560), n = classes.length, label = width < 400 ? SHORT : LABEL;
    const names = path.tree_order.map((k) => classes[k]), longest = Math.max(...names.map((name) => cut(name, label).length));
    const height = Math.max(300, Math.min(n * 16 + 70, 620)), left = Math.min(width * 0.35, 12 + 6.8 * longest);
    const most = Math.max(path.pber[0] - path.pber[path.pber.length - 1], 1e-9);
    const x = (p) => left + (width - 30 - left) * p / most, y = (rank) => 10 + (height - 52) * (rank + 0.5) / n;
    const page = chart(div, { width, height, left, x, y, xtitle: "other labels removed", ytitle: null,
      xticks: roundNumbers(most, 4).filter((p) => p <= most).map((p) => [p, inPercent(p)]),
      yticks: namePlaces(0, n, height - 52).map((k) => [k, apart(names[k], label)]) });
    const node = {}, dots = [];
    path.tree_order.forEach((k, rank) => { node[k] = { x: 0, y: rank }; });
    for (let s = 1; s < path.pber.length; s++) {
      const a = node[path.first[s]], b = node[path.second[s]], at = Math.max(0, path.pber[0] - path.pber[s]), done = s <= step;
      const paint = colour(done ? "accent" : "quiet"), middle = (a.y + b.y) / 2;
      page.append(stroke([[x(a.x), y(a.y)], [x(at), y(a.y)], [x(at), y(b.y)], [x(b.x), y(b.y)]], paint, done ? 2.5 : 1));
      node[path.first[s]] = { x: at, y: middle };
      dots.push(dot(x(at), y(middle), n > 60 ? 2.5 : 4, paint, stepWords(s), s));
    }
    page.append(...dots);
  }

  function drawMerged(groups) {
    const S = mergedMatrix(groups), long = groups.map((group) => apart(groupName(group, 8), 90));
    drawHeat($("merged"), S, groups.map((group) => groupName(group)),
      (r, c) => `${long[r]} \u2192 ${long[c]}\nrate ${percent(S[r][c])}`);
  }

  function showStep() {
    const step = Number($("step").value), groups = groupsAt(step);
    $("merge").classList.toggle("untouched", step === 0); // the same matrix twice would be one too many
    $("step").setAttribute("aria-valuetext", stepWords(step));
    $("merge-said").textContent = mergeWords(step);
    listGroups(groups);
    drawCurve(step);
    drawTree(step);
    if (step) drawMerged(groups);
  }

  function moveTo(step) {
    $("step").value = step;
    showStep();
  }

  function startMerging() {
    let waiting = false; // dragging sends more events than can be drawn
    $("step").addEventListener("input", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; showStep(); });
    });
    $("step-less").addEventListener("click", () => moveTo(Number($("step").value) - 1));
    $("step-more").addEventListener("click", () => moveTo(Number($("step").value) + 1));
    for (const id of ["curve", "tree"]) $(id).addEventListener("click", ({ target }) => {
      if (target.dataset.step) moveTo(Number(target.dataset.step));
    });
    startHeat($("merged"), showStep);
  }

  // ------------------------------------------------------------------ the page

  function draw() {
    if (summary.limit) drawLimit();
    if (visible("heatmap")) drawMatrix();
    if (path && visible("curve")) showStep();
    $("theme").textContent = isDark() ? "Light" : "Dark";
    $("theme").setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  }

  function print(starts) {
    printing = starts;
    const root = document.documentElement;
    if (starts) {
      root.dataset.before = root.dataset.theme || "";
      root.dataset.theme = "light";
    } else if (root.dataset.before) root.dataset.theme = root.dataset.before;
    else delete root.dataset.theme;
    for (const details of document.querySelectorAll("details[data-print]")) details.open = starts;
    if (starts) for (const fold of folds) fold.open = true;
    draw();
  }

  function save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([$("summary").textContent], { type: "application/json" }));
    link.download = "collisions.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // A page of many screens on a telephone starts folded; what is opened is drawn then, and charts get their handlers.
  const folds = [...document.querySelectorAll("details.fold")], started = new Set();
  const screens = document.documentElement.scrollHeight / window.innerHeight;
  if (window.innerWidth < 600 && screens > 8) for (const fold of folds) fold.open = false;
  function start() {
    for (const [id, begin] of [["heatmap", startLookUp], ["curve", startMerging]])
      if ($(id) && visible(id) && !started.has(id)) { started.add(id); begin(); }
  }
  startTips();
  draw();
  start();
  for (const fold of folds) fold.addEventListener("toggle", () => { if (fold.open) { draw(); start(); } });
  for (const link of document.querySelectorAll("nav a")) link.addEventListener("click", () => {
    const fold = document.querySelector(link.hash + " > details.fold");
    if (fold) fold.open = true;
  });
  if ($("order")) $("order").addEventListener("change", drawMatrix);
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    draw();
  });
  $("print").addEventListener("click", () => window.print());
  $("save").addEventListener("click", save);
  media.addEventListener("change", draw);
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });
})();
