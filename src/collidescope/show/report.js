// Charts and the merge explorer. Everything shown comes from the JSON in the page; class names are text, never markup.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const summary = JSON.parse($("summary").textContent);
  const { classes, matrix, joint, merge_path: path } = summary;
  const BEND = Math.cbrt; // small rates must show beside large ones
  const LABEL = 22, SHORT = 12; // characters of a name on an axis, on wide and on narrow screens
  const ROOM = 13; // pixels that a name needs on an axis
  const SCREENS = 8; // a longer page starts folded on a telephone
  const VALUES = 12; // up to this many classes the numbers stand in the cells
  const SCALES = {
    light: [[0, "#fff7ec"], [0.25, "#fdd49e"], [0.5, "#fc8d59"], [0.75, "#d7301f"], [1, "#7f0000"]],
    dark: [[0, "#171b26"], [0.25, "#4b2343"], [0.5, "#a03a4b"], [0.75, "#ea763a"], [1, "#ffe48f"]],
  };
  const PAPER = { FIGURE: 300 }; // pixels of a chart on paper where two stand side by side
  const CONFIG = {
    displaylogo: false, responsive: false, doubleClick: "reset",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
  };

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
    return letters.length <= longest ? letters.join("") : letters.slice(0, longest - 1).join("") + "\u2026";
  };
  const apart = (name, longest) => "\u2068" + cut(name, longest) + "\u2069";
  // plotly reads a little markup in labels, and takes what stands between dollars for mathematics
  const escaped = (words) =>
    words.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/[$]/g, "&#36;");
  const end = (which, i, j) => (summary[which] === null ? null : summary[which][i][j]);
  const visible = (id) => printing || $(id).offsetParent !== null; // not inside a folded section
  const count = (n) => Math.round(n).toLocaleString("en");

  function cellWords(i, j) {
    const of = `Labelled ${apart(classes[i], 60)}, seen again as ${i === j ? "the same" : apart(classes[j], 60)}: `;
    const rows = summary.counts === null ? "" : `; ${count(summary.counts[i])} rows of ${apart(classes[i], 60)}`;
    return of + percent(matrix[i][j]) + between(end("low", i, j), end("high", i, j)) + rows + ".";
  }

  function cellHover(i, j) {
    const lines = [
      `<b>${escaped(apart(classes[i], 50))} \u2192 ${escaped(apart(classes[j], 50))}</b>`,
      `rate ${percent(matrix[i][j])}`,
    ];
    const interval = between(end("low", i, j), end("high", i, j));
    if (interval) lines.push(`interval${interval}`);
    if (i !== j) lines.push(`the other way ${percent(matrix[j][i])}`);
    if (summary.counts !== null) lines.push(`rows ${count(summary.counts[i])} \u2192 ${count(summary.counts[j])}`);
    return lines.join("<br>");
  }

  // ------------------------------------------------------------------ colours

  const media = window.matchMedia("(prefers-color-scheme: dark)");
  let printing = false;
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return !printing && (chosen ? chosen === "dark" : media.matches);
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const base = () => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink") },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("quiet"), align: "left", namelength: -1,
      font: { color: colour("ink"), size: 13, family: getComputedStyle(document.body).fontFamily } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("quiet"), activecolor: colour("ink") },
    showlegend: false, hovermode: "closest", dragmode: "zoom",
  });
  const width = (div, most) => {
    const room = printing ? PAPER[div.parentElement.tagName] || 640 : div.clientWidth;
    return Math.max(260, Math.min(room, most));
  };

  // ------------------------------------------------------------------ heat maps

  // Names along an axis from `low` to `high`: as many as there is room for.
  function ticks(names, low, high, pixels, longest) {
    const first = Math.max(0, Math.ceil(low)), last = Math.min(names.length - 1, Math.floor(high));
    const step = Math.max(1, Math.ceil(((high - low) * ROOM) / pixels));
    const tickvals = [];
    for (let k = Math.ceil(first / step) * step; k <= last; k += step) tickvals.push(k);
    return { tickvals, ticktext: tickvals.map((k) => escaped(apart(names[k], longest))) };
  }

  function drawHeat(div, S, names, hover) {
    const n = S.length, side = width(div, Math.max(400, Math.min(760, 250 + 90 * n)));
    const narrow = side < 480, label = narrow ? SHORT : LABEL;
    const longest = Math.max(...names.map((name) => cut(name, label).length));
    const margin = Math.min(side * 0.34, 42 + 6.4 * longest);
    const height = side * (narrow ? 1.05 : 0.92), length = side - margin - (narrow ? 10 : 90);
    let largest = 0;
    S.forEach((row, i) => row.forEach((value, j) => { if (i !== j) largest = Math.max(largest, value); }));
    const top = largest > 0 ? largest : 1;
    const marks = [0, 0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 1].filter(
      (v) => v === 0 || (v >= top / 300 && BEND(v) < 0.93 * BEND(top))).concat(top);
    const own = colour("own");
    const off = S.map((row, i) => row.map((value, j) => (i === j ? null : BEND(value))));
    const on = S.map((row, i) => row.map((value, j) => (i === j ? value : null)));
    const numbers = (own) => n > VALUES || length / n < 34 ? {} : { texttemplate: "%{text}",
      text: S.map((row, i) => row.map((v, j) => ((i === j) === own ? (100 * v).toFixed(v < 0.1 ? 2 : 1) : ""))),
      textfont: { size: length / n < 44 ? 10 : 12, ...(own ? { color: colour("ink") } : {}) } };
    const gap = n <= 60 ? 1 : 0;
    const common = { type: "heatmap", hoverinfo: "text", hovertext: hover, hoverongaps: false, xgap: gap, ygap: gap };
    const upright = n * longest * 6.5 > length;
    const axis = { range: [-0.5, n - 0.5], showgrid: false, zeroline: false, tickfont: { size: 11 }, ticklen: 2,
      constrain: "domain", minallowed: -0.5, maxallowed: n - 0.5, ...ticks(names, -0.5, n - 0.5, length, label) };
    const layout = { ...base(), width: side, height,
      margin: { l: margin, b: upright ? margin : 48, t: 30, r: narrow ? 10 : 90 },
      xaxis: { ...axis, title: { text: "seen again as", standoff: 6 }, tickangle: upright ? -90 : 0 },
      yaxis: { ...axis, range: [n - 0.5, -0.5], title: { text: "labelled", standoff: 6 } } };
    const bar = { title: { text: "rate", side: "right" }, tickvals: marks.map(BEND), ticktext: marks.map(percent),
      thickness: 14, outlinewidth: 0 };
    Plotly.react(div, [
      { ...common, ...numbers(false), z: off, zmin: 0, zmax: BEND(top), colorscale: SCALES[isDark() ? "dark" : "light"],
        showscale: n > 1 && !narrow, colorbar: bar },
      { ...common, ...numbers(true), z: on, zmin: 0, zmax: 1, colorscale: [[0, own], [1, own]], showscale: false },
    ], layout, CONFIG);
    const before = div.axes;
    div.axes = { names, length, label };
    if (!before) {
      div.on("plotly_relayout", (change) => {
        if (!Object.keys(change).some((key) => key.includes("axis.range") || key.includes("autorange"))) return;
        const { xaxis, yaxis } = div.layout, update = {};
        for (const [name, shown] of [["xaxis", xaxis], ["yaxis", yaxis]]) {
          const [low, high] = [...shown.range].sort((a, b) => a - b);
          const found = ticks(div.axes.names, low, high, div.axes.length, div.axes.label);
          update[name + ".tickvals"] = found.tickvals;
          update[name + ".ticktext"] = found.ticktext;
        }
        Plotly.relayout(div, update);
      });
    }
  }

  // ------------------------------------------------------------------ what unlimited rows would leave

  function drawLimit() {
    const { curve, band, low, high, pber } = summary.limit, div = $("limit"), many = (n) => Math.round(n).toLocaleString("en");
    const last = curve.rows[curve.rows.length - 1], edge = 200 * last, in100 = (list) => list.map((p) => 100 * p);
    const accent = colour("accent"), ink = colour("ink"), traces = [];
    if (band) {
      traces.push({ x: band.rows.concat([...band.rows].reverse()), y: in100(band.high.concat([...band.low].reverse())),
        fill: "toself", mode: "none", fillcolor: accent + "30", hoverinfo: "skip" });
      traces.push({ x: band.rows, y: in100(band.middle), mode: "lines", line: { color: accent, dash: "dash", width: 1.5 },
        hoverinfo: "skip" });
    }
    const known = curve.stderr.every((e) => e !== null);
    traces.push({ x: curve.rows, y: in100(curve.pber), mode: "lines+markers", line: { color: ink, width: 2 },
      marker: { size: 7 }, hoverinfo: "text", hovertext: curve.rows.map((n, i) => `${many(n)} rows: ${percent(curve.pber[i])}`),
      ...(known ? { error_y: { array: in100(curve.stderr), color: colour("quiet"), thickness: 1.2, width: 4 } } : {}) });
    const middle = band ? pber : (low + high) / 2;
    traces.push({ x: [edge], y: [100 * middle], mode: "markers", marker: { size: 9, color: accent, opacity: band ? 1 : 0 },
      error_y: { symmetric: false, array: [100 * (high - middle)], arrayminus: [100 * (middle - low)], color: accent,
        thickness: 3, width: 7 }, hoverinfo: "text", hovertext: [`unlimited rows:${between(low, high)}`] });
    const side = width(div, 760), narrow = side < 420;
    const shown = curve.rows.filter((_, i) => !narrow || (curve.rows.length - 1 - i) % 2 === 0);
    Plotly.react(div, traces, { ...base(), dragmode: false, width: side, height: narrow ? 230 : 360,
      margin: { l: 45, r: 20, t: 10, b: 42 },
      xaxis: { type: "log", range: [Math.log10(curve.rows[0] / 1.3), Math.log10(edge * 2.2)], fixedrange: true,
        gridcolor: colour("line"), zeroline: false, tickvals: [...shown, edge], tickangle: 0,
        ticktext: [...shown.map(many), "unlimited"], title: { text: "rows", standoff: 4 } },
      yaxis: { ticksuffix: "%", rangemode: "tozero", gridcolor: colour("line"), zeroline: false, fixedrange: true } },
      { ...CONFIG, displayModeBar: false });
  }

  // ------------------------------------------------------------------ S

  const order = () => ($("order") && $("order").value === "leaf" ? summary.leaf_order : classes.map((_, k) => k));

  function drawMatrix() {
    const shown = order();
    drawHeat($("heatmap"), shown.map((i) => shown.map((j) => matrix[i][j])), shown.map((k) => classes[k]),
      shown.map((i) => shown.map((j) => cellHover(i, j))));
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
    $("heatmap").on("plotly_click", ({ points: [{ x, y }] }) => {
      const shown = order();
      [$("pair-class").value, $("pair-other").value] = [shown[y], shown[x]];
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
      `Labelled a second time, ${percent(path.pber[step])} of inputs would be in another one` +
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
    const div = $("curve"), points = path.pber.map((p) => 100 * p);
    const line = { color: colour("bar"), width: 2 };
    const traces = [{ x: path.n_groups, y: points, mode: "lines+markers", line, hoverinfo: "text",
      hovertext: path.pber.map((_, s) => stepWords(s)), marker: { size: classes.length > 60 ? 3 : 6 } }];
    if (path.low[0] !== null && path.low.length > 1 && path.low[1] !== null) {
      const both = path.n_groups.concat([...path.n_groups].reverse());
      const ends = path.high.concat([...path.low].reverse()).map((p) => 100 * p);
      const fillcolor = colour("bar") + "33";
      traces.unshift({ x: both, y: ends, fill: "toself", mode: "none", fillcolor, hoverinfo: "skip" });
    }
    if (path.limit[0] !== null) traces.push({ x: path.n_groups, y: path.limit.map((p) => 100 * p), mode: "lines",
      line: { color: colour("accent"), width: 1.5, dash: "dash" }, hoverinfo: "text",
      hovertext: path.limit.map((p, s) => `${path.n_groups[s]} groups, unlimited rows: ${percent(p)}`) });
    traces.push({ x: [path.n_groups[step]], y: [points[step]], mode: "markers", hoverinfo: "skip",
      marker: { size: 13, color: colour("accent") } });
    const grid = { gridcolor: colour("line"), zeroline: false, fixedrange: true };
    Plotly.react(div, traces, { ...base(), dragmode: false, width: width(div, 560), height: 300,
      margin: { l: 55, r: 15, t: 15, b: 45 },
      xaxis: { ...grid, title: { text: "groups" }, autorange: "reversed", tickformat: "d",
        ...(classes.length <= 12 ? { dtick: 1 } : {}) },
      yaxis: { ...grid, title: { text: "another label" }, ticksuffix: "%", rangemode: "tozero" },
    }, { ...CONFIG, displayModeBar: false });
  }

  function drawTree(step) {
    const div = $("tree"), side = width(div, 560), n = classes.length, label = side < 400 ? SHORT : LABEL;
    const node = {}, done = { x: [], y: [] }, open = { x: [], y: [] };
    const dots = { x: [], y: [], text: [], step: [], color: [] };
    path.tree_order.forEach((k, rank) => { node[k] = { x: 0, y: rank }; });
    for (let s = 1; s < path.pber.length; s++) {
      const a = node[path.first[s]], b = node[path.second[s]], x = 100 * Math.max(0, path.pber[0] - path.pber[s]);
      const into = s <= step ? done : open;
      into.x.push(a.x, x, x, b.x, null);
      into.y.push(a.y, a.y, b.y, b.y, null);
      node[path.first[s]] = { x, y: (a.y + b.y) / 2 };
      dots.x.push(x); dots.y.push((a.y + b.y) / 2); dots.step.push(s); dots.text.push(stepWords(s));
      dots.color.push(s <= step ? colour("accent") : colour("quiet"));
    }
    const names = path.tree_order.map((k) => classes[k]);
    const height = Math.max(300, Math.min(n * 16 + 70, 620));
    const lines = { mode: "lines", hoverinfo: "skip" };
    const longest = Math.max(...names.map((name) => cut(name, label).length));
    Plotly.react(div, [
      { ...lines, ...open, line: { color: colour("quiet"), width: 1 } },
      { ...lines, ...done, line: { color: colour("accent"), width: 2.5 } },
      { x: dots.x, y: dots.y, customdata: dots.step, mode: "markers", hoverinfo: "text", hovertext: dots.text,
        marker: { color: dots.color, size: n > 60 ? 5 : 9 } },
    ], { ...base(), dragmode: false, width: side, height,
      margin: { l: Math.min(side * 0.35, 18 + 6.4 * longest), r: 15, t: 15, b: 45 },
      xaxis: { title: { text: "other labels removed" }, ticksuffix: "%", gridcolor: colour("line"), zeroline: false,
        rangemode: "tozero", fixedrange: true },
      yaxis: { range: [n - 0.5, -0.5], showgrid: false, zeroline: false, fixedrange: true, tickfont: { size: 11 },
        ...ticks(names, -0.5, n - 0.5, height - 60, label) } }, { ...CONFIG, displayModeBar: false });
  }

  function drawMerged(groups) {
    const S = mergedMatrix(groups), names = groups.map((group) => groupName(group));
    const long = groups.map((group) => escaped(apart(groupName(group, 8), 90)));
    drawHeat($("merged"), S, names, S.map((row, i) => row.map((value, j) =>
      `<b>${long[i]} \u2192 ${long[j]}</b><br>rate ${percent(value)}`)));
  }

  function showStep() {
    const step = Number($("step").value), groups = groupsAt(step);
    $("merge").classList.toggle("untouched", step === 0); // on paper the same matrix twice would be one too many
    $("step").setAttribute("aria-valuetext", stepWords(step));
    $("merge-said").textContent = mergeWords(step);
    listGroups(groups);
    drawCurve(step);
    drawTree(step);
    drawMerged(groups);
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
    $("curve").on("plotly_click", ({ points: [{ x }] }) => moveTo(path.n_groups.indexOf(x)));
    $("tree").on("plotly_click", ({ points: [{ customdata }] }) => { if (customdata) moveTo(customdata); });
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
  if (window.innerWidth < 600 && screens > SCREENS) for (const fold of folds) fold.open = false;
  function start() {
    for (const [id, begin] of [["heatmap", startLookUp], ["curve", startMerging]])
      if ($(id) && visible(id) && !started.has(id)) { started.add(id); begin(); }
  }
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
