// What the controls of the graph do, and the two scenes that it shows: all stages, and the nodes of one.

/** @template {HTMLElement} T @param {string} id @returns {T} */
const byId = (id) => /** @type {T} */ (document.getElementById(id));
const MOST_RESULTS = 50;
const [STEP_X, STEP_Y, BOX_W, BOX_H] = [176, 84, 160, 46];

const canvas = /** @type {HTMLCanvasElement} */ (byId("canvas"));
byId("graph-box").hidden = false;
document.querySelectorAll(".script-off").forEach((one) => one.remove());
const drawing = new Drawing(canvas);
/** The stage whose nodes are shown; -1 for all stages. */
let opened = -1;
let folds = true;
/** @type {number[]} */
let way = [];

/** @param {string} tag @param {string} text @param {string} [kind] @returns {HTMLElement} */
function element(tag, text, kind) {
  const made = document.createElement(tag);
  // As text, never as markup: names are a stranger's.
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/** @param {string} text @param {() => void} act @param {string} [more] @returns {HTMLElement} */
function button(text, act, more) {
  const made = element("button", text, "plain");
  /** @type {HTMLButtonElement} */ (made).type = "button";
  if (more) made.append(" ", element("small", more));
  made.addEventListener("click", act);
  return made;
}

/** @param {Repeat[]} repeats @param {Map<number, Box>} boxes @param {(at: number, period: number) => string} title @param {number} first @param {(box: Box) => number} [rowOf] @returns {Frame[]} */
function layerFrames(repeats, boxes, title, first, rowOf = () => 0) {
  return repeats.flatMap(([start, period, count]) => {
    const inside = Array.from({ length: period }, (_, at) => boxes.get(first + start + at)).filter((box) => box !== undefined);
    // A frame for each row that a layer goes through; the first one has the title.
    /** @type {Map<number, Box[]>} */
    const rows = new Map();
    for (const box of inside) rows.set(rowOf(box), [...(rows.get(rowOf(box)) || []), box]);
    return [...rows.values()].map((row, number) => {
      const x = Math.min(...row.map((box) => box.x)) - 12, y = Math.min(...row.map((box) => box.y)) - 12;
      const w = Math.max(...row.map((box) => box.x + box.w)) + 12 - x, h = Math.max(...row.map((box) => box.y + box.h)) + 12 - y;
      return { x, y, w, h, title: number ? "" : `${title(start, period)} ×${count}` };
    });
  });
}

/** @param {Stage} stage @returns {number} The largest error of its values; -1 where none was compared. */
const worst = (stage) => (node.error || []).slice(stage.first, stage.first + stage.count).reduce((most, one) => Math.max(most, one), -1);

/** @returns {Scene} Stages in the order of the schedule, as wide as they take time. */
function scheduleScene() {
  const shown = standIns(stages.length, folds ? data.layers : []);
  const longest = Math.max(1, ...stages.map((stage) => stage.time));
  /** @type {Map<number, Box>} */
  const boxes = new Map();
  const widths = stages.map((stage, id) => (shown[id] === id ? 60 + 200 * (stage.time / longest) : 0));
  // In rows, as text is: one line of hundreds would be read through a keyhole.
  const whole = widths.reduce((sum, width) => sum + (width ? width + 40 : 0), 0);
  const row = Math.max(900, Math.sqrt(whole * 260 * 1.7));
  const lanes = stages.some((stage) => stage.home === "cpu") ? 220 : 120;
  let [x, y] = [0, 0];
  stages.forEach((stage, id) => {
    const w = widths[id];
    if (!w) return;
    if (x && x + w > row) { x = 0; y += lanes; }
    boxes.set(id, { id, x, y: stage.home === "cpu" ? y + 92 : y, w, h: 56, title: stage.name, sub: `${timeText(stage.time)} · ${stage.count}`, home: stage.home, bound: stage.bound, heat: stage.time / longest, error: worst(stage) });
    x += w + 40;
  });
  const most = Math.max(1, ...data.links.map((link) => link[3]));
  /** @type {Map<string, Line>} */
  const lines = new Map();
  for (const [source, target, , bytes] of data.links) {
    const [from, to] = [boxes.get(shown[source]), boxes.get(shown[target])];
    // From one layer to the next is back to the first where they are folded.
    if (!from || !to || from.id >= to.id) continue;
    const width = 1 + 9 * Math.sqrt(bytes / most);
    const key = `${from.id} ${to.id}`;
    const known = lines.get(key);
    if (!known || known.width < width) lines.set(key, { from, to, width, crosses: from.home !== to.home });
  }
  return { boxes: [...boxes.values()], lines: [...lines.values()], frames: folds ? layerFrames(data.layers, boxes, () => "equal layers", 0, (box) => Math.floor(box.y / lanes)) : [], down: false };
}

/** @param {number} index @returns {Scene} The nodes of a stage. */
function stageScene(index) {
  const stage = stages[index];
  const repeats = folds ? data.repeats[index] || [] : [];
  const shown = standIns(stage.count, repeats);
  const ids = Array.from({ length: stage.count }, (_, at) => stage.first + at);
  /** @type {[number, number, number][]} */
  const places = repeats.length ? data.folded[index] : ids.map((id) => [id, node.x[id], node.y[id]]);
  const longest = Math.max(1, ...ids.map((id) => node.time[id]));
  /** @type {Map<number, Box>} */
  const boxes = new Map();
  for (const [id, x, y] of places) {
    const sub = timeText(node.time[id]);
    boxes.set(id, { id, x: (x / 4) * STEP_X, y: (y / 4) * STEP_Y, w: BOX_W, h: BOX_H, title: texts[node.op[id]], sub, home: stage.home, bound: stage.bound, heat: node.time[id] / longest, error: node.error ? node.error[id] : -1 });
  }
  const standIn = (/** @type {number} */ id) => (stageOf[id] === index ? boxes.get(stage.first + shown[id - stage.first]) : undefined);
  const own = new Set(ids.flatMap((id) => writes[id]));
  const most = Math.max(1, ...[...own].map((one) => edge.bytes[one]));
  /** @type {Map<string, Line>} */
  const lines = new Map();
  for (const one of own) {
    const from = standIn(edge.from[one]);
    for (const target of edge.to[one]) {
      const to = standIn(target);
      if (!from || !to || from.id >= to.id) continue;
      lines.set(`${from.id} ${to.id}`, { from, to, width: 1 + 4 * Math.sqrt(Math.max(0, edge.bytes[one]) / most), crosses: false });
    }
  }
  /** @param {number} at @param {number} period @returns {string} The module that all nodes of a layer are in. */
  const title = (at, period) => {
    const parts = texts[node.module[stage.first + at]].split(".");
    let same = parts.length;
    for (let other = at; other < at + period; other += 1) {
      const path = texts[node.module[stage.first + other]].split(".");
      while (same && parts.slice(0, same).join(".") !== path.slice(0, same).join(".")) same -= 1;
    }
    return parts.slice(0, same).join(".") || "equal layers";
  };
  return { boxes: [...boxes.values()], lines: [...lines.values()], frames: layerFrames(repeats, boxes, title, stage.first), down: true };
}

/** @param {number} id @returns {number} The box that stands for a node in what is shown. */
function boxOf(id) {
  if (opened < 0) return standIns(stages.length, folds ? data.layers : [])[stageOf[id]];
  const stage = stages[opened];
  return stageOf[id] === opened ? stage.first + standIns(stage.count, folds ? data.repeats[opened] || [] : [])[id - stage.first] : -1;
}

/** Show what is opened anew, with the way that is marked. */
function render() {
  drawing.marked = new Set(way.map(boxOf));
  drawing.show(opened < 0 ? scheduleScene() : stageScene(opened));
  const path = byId("path");
  path.replaceChildren();
  if (opened < 0) {
    path.append(`${stages.length} sections and fallbacks in the order of the schedule, as wide as they take time.`);
  } else {
    path.append(button("All sections", () => openStage(-1)), ` › ${stages[opened].name}, ${stages[opened].count} nodes`);
  }
}

/** @param {number} index */
function openStage(index) {
  opened = index;
  drawing.selected = -1;
  render();
  if (index >= 0) describeStage(index);
}

/** @param {number} id @param {boolean} link Whether the address changes, too. */
function selectNode(id, link) {
  if (opened !== stageOf[id]) { opened = stageOf[id]; render(); }
  drawing.selected = boxOf(id);
  drawing.centre(drawing.selected);
  describeNode(id);
  if (link) history.replaceState(null, "", `#node=${encodeURIComponent(node.name[id] || String(id))}`);
}

/** @param {[string, string][]} facts @returns {HTMLElement} */
function factList(facts) {
  const list = document.createElement("dl");
  for (const [word, text] of facts) if (text) list.append(element("dt", word), element("dd", text));
  return list;
}

/** @param {string} title @param {number[]} ids @param {(id: number) => string} more @returns {HTMLElement[]} */
function neighbours(title, ids, more) {
  if (!ids.length) return [];
  const list = document.createElement("ul");
  for (const id of ids.slice(0, MOST_RESULTS)) {
    const item = document.createElement("li");
    item.append(button(nodeName(id), () => selectNode(id, true), more(id)));
    list.append(item);
  }
  return [element("h3", title), list];
}

/** @param {number} id */
function describeNode(id) {
  const stage = stages[stageOf[id]];
  const detail = byId("detail");
  detail.replaceChildren(
    element("h3", nodeName(id)),
    factList([
      ["operator", texts[node.op[id]]], ["runs on", stage.home === "cpu" ? "CPU" : "RDU"], ["in", stage.name], ["why", texts[node.why[id]]],
      ["module", texts[node.module[id]]], ["line", texts[node.line[id]]], ["time", timeText(node.time[id])],
      ["work", amountText(node.flops[id], "FLOP")], ["weights", amountText(node.weights[id], "B")],
      ["error", node.error && node.error[id] >= 0 ? `${Number(node.error[id].toPrecision(3))} of what is allowed` : ""],
      ["writes", writes[id].map((one) => `${edge.name[one]}: ${texts[edge.type[one]]}, ${amountText(edge.bytes[one], "B")}`).join("; ")],
    ]),
    ...neighbours("Reads from", [...new Set(reads[id].map((one) => edge.from[one]))].filter((one) => one >= 0), (one) => texts[node.op[one]]),
    ...neighbours("Is read by", [...new Set(writes[id].flatMap((one) => edge.to[one]))], (one) => texts[node.op[one]]),
  );
  if (stages.some((one) => one.home === "cpu")) {
    detail.append(button("Way to the nearest fallback", () => showWay(id)));
  }
}

/** @param {number} id */
function showWay(id) {
  way = wayToFallback(id);
  const selected = drawing.selected;
  render();
  drawing.selected = selected;
  describeNode(id);
  byId("detail").append(...(way.length ? neighbours(`${way.length - 1} steps to the CPU`, way, (one) => stages[stageOf[one]].name) : [element("p", "No way leads to the CPU.")]));
}

/** @param {number} index */
function describeStage(index) {
  const stage = stages[index];
  const linked = (/** @type {number} */ side) => data.links.filter((link) => link[side] === index).map((link) => {
    const other = stages[link[1 - side]];
    return `${other ? other.name : "the host"}: ${link[2]} values, ${amountText(link[3], "B")}`;
  }).join("; ");
  byId("detail").replaceChildren(
    element("h3", stage.name),
    factList([
      ["runs on", stage.home === "cpu" ? "CPU" : "RDU"], ["type", stage.type], ["graph", stage.graph], ["nodes", String(stage.count)],
      ["time", timeText(stage.time)], ["most of it", stage.bound], ["work", amountText(stage.flops, "FLOP")], ["from", linked(1)], ["to", linked(0)],
    ]),
  );
  if (opened !== index) byId("detail").append(button("Show its nodes", () => openStage(index)));
}

/** @param {Box} box */
function choose(box) {
  if (opened >= 0) { selectNode(box.id, true); return; }
  // Once selects, twice opens, as files do.
  if (drawing.selected === box.id) { openStage(box.id); return; }
  drawing.selected = box.id;
  drawing.request();
  describeStage(box.id);
}

/** @param {number} by */
function step(by) {
  const boxes = drawing.scene.boxes;
  const at = boxes.findIndex((box) => box.id === drawing.selected);
  const box = boxes[Math.min(boxes.length - 1, Math.max(0, at + by))];
  if (!box) return;
  drawing.selected = box.id;
  drawing.centre(box.id);
  if (opened < 0) describeStage(box.id); else describeNode(box.id);
}

/** The modules as a tree, of which a level is made when it is opened. */
function moduleTree() {
  /** @typedef {{name: string, path: string, children: Map<string, Branch>, nodes: number, time: number, first: number}} Branch */
  /** @type {Branch} */
  const root = { name: "", path: "", children: new Map(), nodes: 0, time: 0, first: 0 };
  for (let id = 0; id < nodeCount; id += 1) {
    let branch = root;
    for (const part of texts[node.module[id]].split(".").filter(Boolean)) {
      let next = branch.children.get(part);
      if (!next) branch.children.set(part, (next = { name: part, path: branch.path ? `${branch.path}.${part}` : part, children: new Map(), nodes: 0, time: 0, first: id }));
      next.nodes += 1;
      next.time += node.time[id];
      branch = next;
    }
  }
  /** @param {Branch} branch @returns {HTMLElement} */
  const level = (branch) => {
    const list = document.createElement("ul");
    for (const child of branch.children.values()) {
      const item = document.createElement("li");
      const more = `${child.nodes} nodes, ${timeText(child.time)}`;
      const show = () => { selectNode(child.first, true); };
      if (child.children.size) {
        const part = document.createElement("details");
        part.append(element("summary", `${child.name} · ${more}`));
        part.addEventListener("toggle", () => { if (part.open && part.children.length === 1) part.append(button("first node", show), level(child)); });
        item.append(part);
      } else item.append(button(child.name, show, more));
      list.append(item);
    }
    return list;
  };
  if (!root.children.size) { byId("tree").hidden = true; return; }
  byId("modules").replaceChildren(level(root));
}

function search() {
  const query = /** @type {HTMLInputElement} */ (byId("search")).value;
  const { ids, count } = findNodes(query, MOST_RESULTS);
  const list = byId("results");
  list.replaceChildren(...ids.map((id) => {
    const item = document.createElement("li");
    item.append(button(nodeName(id), () => selectNode(id, true), [texts[node.op[id]], stages[stageOf[id]].name, texts[node.line[id]]].filter(Boolean).join(" · ")));
    return item;
  }));
  list.hidden = !ids.length;
  byId("found").textContent = query.trim() ? `${count} ${count === 1 ? "node" : "nodes"}${count > ids.length ? `, the first ${ids.length} of them` : ""}` : "";
}

/** Show what the address names. */
function follow() {
  const named = /^#node=(.*)$/.exec(location.hash);
  if (!named) return;
  let name = named[1];
  try { name = decodeURIComponent(name); } catch { /* As it stands. */ }
  const id = nodeNamed(name);
  if (id < 0) { byId("found").textContent = "The node of this link is not in the graph."; return; }
  selectNode(id, false);
  byId("graph").scrollIntoView();
}

/** @param {number} factor */
function zoomMiddle(factor) {
  const { width, height } = drawing.size();
  drawing.zoom(factor, width / 2, height / 2);
}

/** @type {Object<string, () => void>} */
const KEYS = {
  ArrowRight: () => step(1), ArrowDown: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => step(-1),
  Enter: () => { if (opened < 0 && drawing.selected >= 0) openStage(drawing.selected); },
  Escape: () => openStage(-1), "+": () => zoomMiddle(1.3), "-": () => zoomMiddle(1 / 1.3), 0: () => drawing.fit(),
};

canvas.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  act();
});
canvas.addEventListener("wheel", (event) => {
  // Plain scrolling stays the page's: a graph must not be a trap.
  if (!event.ctrlKey && !event.shiftKey) return;
  event.preventDefault();
  if (event.ctrlKey) drawing.zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
  else drawing.pan(-(event.deltaY || event.deltaX), 0);
}, { passive: false });

/** @type {{x: number, y: number, moved: number} | null} */
let drag = null;
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, y: event.clientY, moved: 0 };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
  drag = { x: event.clientX, y: event.clientY, moved: drag.moved + Math.abs(x) + Math.abs(y) };
  drawing.pan(x, y);
});
canvas.addEventListener("pointerup", (event) => {
  const still = drag && drag.moved < 5;
  drag = null;
  if (!still) return;
  const box = drawing.boxAt(event.offsetX, event.offsetY);
  if (box) choose(box);
  else if (drawing.frameAt(event.offsetX, event.offsetY)) byId("fold").click();
});
canvas.addEventListener("pointercancel", () => { drag = null; });

byId("search").addEventListener("input", search);
byId("colour").addEventListener("change", (event) => {
  drawing.colour = /** @type {HTMLSelectElement} */ (event.target).value;
  renderKey();
  drawing.request();
});
byId("fold").addEventListener("click", () => {
  folds = !folds;
  byId("fold").setAttribute("aria-pressed", String(folds));
  drawing.selected = -1;
  render();
});
for (const [id, act] of /** @type {[string, () => void][]} */ ([["larger", KEYS["+"]], ["smaller", KEYS["-"]], ["whole", KEYS[0]]])) byId(id).addEventListener("click", act);
function renderKey() {
  const bounds = [...new Set(stages.map((stage) => stage.bound))].filter(Boolean);
  const colours = drawing.colour === "bound" ? bounds.map((bound) => keyLine(BOUNDS[bound] || "rdu", bound))
    : drawing.colour === "error" ? [keyLine("bad", "beyond the tolerance"), keyLine("rdu", "within it: the darker, the nearer to its end")]
    : drawing.colour === "time" ? [keyLine("cpu", "the darker, the longer")] : [keyLine("rdu", "RDU: rounded")];
  if (drawing.colour !== "time" && drawing.colour !== "error") colours.push(keyLine("cpu", "CPU: cut corners"));
  byId("key").replaceChildren(...colours, element("li", "thick line: many bytes"), element("li", "drag to move, Ctrl and wheel to zoom"));
}
for (const query of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
  matchMedia(query).addEventListener("change", () => { drawing.readColours(); drawing.request(); });
}
new ResizeObserver(() => drawing.request()).observe(canvas);
window.addEventListener("hashchange", follow);
if (node.error) {
  drawing.colour = "error";
  /** @type {HTMLSelectElement} */ (byId("colour")).value = "error";
}
moduleTree();
renderKey();
render();
// What takes most time is what most people look for.
describeStage(stages.reduce((most, stage, index) => (stage.time > stages[most].time ? index : most), 0));
follow();
