// Draws boxes and lines on a canvas: only those that are seen, as large as they are looked at.

/** @typedef {{id: number, x: number, y: number, w: number, h: number, title: string, sub: string, home: string, bound: string, heat: number, error: number}} Box */
/** @typedef {{from: Box, to: Box, width: number, crosses: boolean}} Line */
/** @typedef {{x: number, y: number, w: number, h: number, title: string}} Frame */
/** @typedef {{boxes: Box[], lines: Line[], frames: Frame[], down: boolean}} Scene */

const COLOURS = ["ink", "dim", "line", "card", "soft", "rdu", "rdu-soft", "cpu", "cpu-soft", "mark", "compute", "on_chip", "off_chip", "launch", "fill", "bad"];
/** Names of what bounds a section, as colours are called. @type {Object<string, string>} */
const BOUNDS = { compute: "compute", "on-chip traffic": "on_chip", "off-chip traffic": "off_chip", launch: "launch", fill: "fill" };

class Drawing {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {Scene} */
    this.scene = { boxes: [], lines: [], frames: [], down: true };
    this.scale = 1;
    this.left = 0;
    this.top = 0;
    this.selected = -1;
    /** @type {Set<number>} */
    this.marked = new Set();
    this.colour = "home";
    this.waiting = false;
    /** @type {Object<string, string>} */
    this.colours = {};
    this.readColours();
  }

  /** Take the colours of the page, which change with the user's theme. */
  readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of COLOURS) this.colours[name] = style.getPropertyValue(`--${name}`).trim();
    this.font = getComputedStyle(document.body).fontFamily;
  }

  /** @param {Scene} scene */
  show(scene) {
    this.scene = scene;
    this.fit();
  }

  /** Show all of the scene, or its beginning where that would be too small to read. */
  fit() {
    const { boxes } = this.scene;
    const { width, height } = this.size();
    const right = boxes.reduce((most, box) => Math.max(most, box.x + box.w), 1);
    const bottom = boxes.reduce((most, box) => Math.max(most, box.y + box.h), 1);
    const first = boxes.reduce((least, box) => Math.min(least, box.x), 0);
    const whole = Math.min(width / (right - first + 60), height / (bottom + 80));
    const readable = Math.min(0.6, width / (right - first + 60));
    this.scale = Math.min(1.25, Math.max(whole, readable));
    this.left = (right + first) / 2 - width / 2 / this.scale;
    const high = bottom * this.scale > height;
    this.top = high ? -44 : bottom / 2 - height / 2 / this.scale;
    this.request();
  }

  /** @returns {{width: number, height: number}} The canvas as the page measures it. */
  size() {
    return { width: this.canvas.clientWidth || 1, height: this.canvas.clientHeight || 1 };
  }

  /** Draw before the next frame, once. */
  request() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  /** @param {number} factor @param {number} x @param {number} y Where nothing moves, in pixels. */
  zoom(factor, x, y) {
    const scale = Math.min(4, Math.max(0.005, this.scale * factor));
    this.left += x / this.scale - x / scale;
    this.top += y / this.scale - y / scale;
    this.scale = scale;
    this.request();
  }

  /** @param {number} x @param {number} y In pixels. */
  pan(x, y) {
    this.left -= x / this.scale;
    this.top -= y / this.scale;
    this.request();
  }

  /** @param {number} id */
  centre(id) {
    const box = this.scene.boxes.find((one) => one.id === id);
    if (!box) return;
    const { width, height } = this.size();
    this.scale = Math.max(this.scale, 0.7);
    this.left = box.x + box.w / 2 - width / 2 / this.scale;
    this.top = box.y + box.h / 2 - height / 2 / this.scale;
    this.request();
  }

  /** @param {number} x @param {number} y In pixels. @returns {Box | undefined} */
  boxAt(x, y) {
    const [px, py] = [x / this.scale + this.left, y / this.scale + this.top];
    return this.scene.boxes.find((box) => px >= box.x && px <= box.x + box.w && py >= box.y && py <= box.y + box.h);
  }

  /** @param {number} x @param {number} y In pixels. @returns {Frame | undefined} The frame whose title is there. */
  frameAt(x, y) {
    const [px, py] = [x / this.scale + this.left, y / this.scale + this.top];
    const title = 26 / Math.min(this.scale, 1);
    return this.scene.frames.find((one) => px >= one.x && px <= one.x + one.w && py >= one.y - title && py <= one.y);
  }

  draw() {
    const { context, canvas, scale, colours } = this;
    const { width, height } = this.size();
    const dense = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
      canvas.width = Math.round(width * dense);
      canvas.height = Math.round(height * dense);
    }
    context.setTransform(dense, 0, 0, dense, 0, 0);
    context.fillStyle = colours.soft;
    context.fillRect(0, 0, width, height);
    context.setTransform(dense * scale, 0, 0, dense * scale, -this.left * scale * dense, -this.top * scale * dense);
    const view = { left: this.left, top: this.top, right: this.left + width / scale, bottom: this.top + height / scale };
    for (const frame of this.scene.frames) this.drawFrame(frame);
    for (const line of this.scene.lines) this.drawLine(line, view);
    for (const box of this.scene.boxes) {
      if (box.x < view.right && box.x + box.w > view.left && box.y < view.bottom && box.y + box.h > view.top) this.drawBox(box);
    }
  }

  /** @param {Frame} frame */
  drawFrame(frame) {
    const { context, colours } = this;
    context.fillStyle = colours.card;
    context.strokeStyle = colours.dim;
    context.lineWidth = 1 / this.scale;
    context.setLineDash([6 / this.scale, 4 / this.scale]);
    context.beginPath();
    context.roundRect(frame.x, frame.y, frame.w, frame.h, 10);
    context.fill();
    context.stroke();
    context.setLineDash([]);
    // The title keeps its size: it is what a folded layer is read by.
    context.font = `600 ${13 / Math.min(this.scale, 1)}px ${this.font}`;
    context.fillStyle = colours.ink;
    context.textBaseline = "bottom";
    context.fillText(frame.title, frame.x + 4, frame.y - 4 / this.scale);
  }

  /** @param {Line} line @param {{left: number, top: number, right: number, bottom: number}} view */
  drawLine({ from, to, width, crosses }, view) {
    const { context, colours } = this;
    const down = this.scene.down;
    const [x1, y1] = down ? [from.x + from.w / 2, from.y + from.h] : [from.x + from.w, from.y + from.h / 2];
    const [x2, y2] = down ? [to.x + to.w / 2, to.y] : [to.x, to.y + to.h / 2];
    if (Math.max(x1, x2) < view.left || Math.min(x1, x2) > view.right || Math.max(y1, y2) < view.top || Math.min(y1, y2) > view.bottom) {
      return;
    }
    const marked = this.marked.has(from.id) && this.marked.has(to.id);
    context.strokeStyle = marked ? colours.mark : crosses ? colours.cpu : colours.dim;
    context.globalAlpha = marked || crosses ? 1 : 0.55;
    context.lineWidth = Math.max(marked ? width + 2 : width, 0.6 / this.scale);
    context.beginPath();
    context.moveTo(x1, y1);
    if (down) {
      const bend = Math.min(60, Math.abs(y2 - y1) / 2);
      context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
    } else if (x2 < x1) {
      // Into a later row: through the space between the two.
      context.bezierCurveTo(x1 + 120, y1 + 110, x2 - 120, y2 - 110, x2, y2);
    } else {
      // A far reader is reached around what lies between, not through it.
      const far = x2 - x1 > 80 && y1 === y2 ? Math.min(70, (x2 - x1) / 4) : 0;
      context.bezierCurveTo(x1 + 24, y1 - far, x2 - 24, y2 - far, x2, y2);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  /** @param {Box} box @returns {[string, string]} Fill and edge. */
  paint(box) {
    const { colours } = this;
    if (this.colour === "bound") return [colours[BOUNDS[box.bound] || (box.home === "cpu" ? "cpu" : "launch")], colours.ink];
    return box.home === "cpu" ? [colours["cpu-soft"], colours.cpu] : [colours["rdu-soft"], colours.rdu];
  }

  /** @param {Box} box */
  drawBox(box) {
    const { context, colours, scale } = this;
    const [fill, stroke] = this.paint(box);
    context.beginPath();
    // By shape, too, for whoever does not see the colour: what runs on the CPU has cut corners.
    if (box.home === "cpu") this.cut(box, Math.min(10, box.w / 3));
    else context.roundRect(box.x, box.y, box.w, box.h, 6);
    // Shades are laid over the card, so that they are as dark in either theme.
    const shade = this.colour === "time" ? box.heat : this.colour === "error" ? box.error : -1;
    context.fillStyle = this.colour === "time" || this.colour === "error" ? colours.card : fill;
    context.fill();
    if (shade >= 0) {
      context.globalAlpha = 0.08 + 0.7 * Math.min(1, shade);
      context.fillStyle = this.colour === "time" ? colours.cpu : shade > 1 ? colours.bad : colours.rdu;
      context.fill();
      context.globalAlpha = 1;
    }
    const chosen = box.id === this.selected;
    context.strokeStyle = chosen || this.marked.has(box.id) ? colours.mark : stroke;
    context.lineWidth = (chosen ? 4 : this.marked.has(box.id) ? 3 : 1.25) / Math.min(1, Math.max(scale, 0.4));
    context.stroke();
    this.label(box);
  }

  /** Write on a box what it has room for: letters keep a size that can be read. @param {Box} box */
  label(box) {
    const { context, colours, scale } = this;
    const [wide, high] = [box.w * scale, box.h * scale];
    if (wide < 44 || high < 15) return;
    context.save();
    context.clip();
    const size = Math.max(13, 11 / scale), two = high >= 31;
    context.fillStyle = this.colour === "bound" ? colours.card : colours.ink;
    context.textBaseline = "middle";
    context.font = `600 ${size}px ${this.font}`;
    context.fillText(box.title, box.x + 7 / Math.min(scale, 1), box.y + box.h * (two ? 0.32 : 0.5));
    if (two) {
      context.font = `${size * 0.92}px ${this.font}`;
      if (this.colour !== "bound") context.fillStyle = colours.dim;
      context.fillText(box.sub, box.x + 7 / Math.min(scale, 1), box.y + box.h * 0.72);
    }
    context.restore();
  }

  /** @param {Box} box @param {number} by */
  cut({ x, y, w, h }, by) {
    const { context } = this;
    context.moveTo(x + by, y);
    context.lineTo(x + w - by, y);
    context.lineTo(x + w, y + by);
    context.lineTo(x + w, y + h - by);
    context.lineTo(x + w - by, y + h);
    context.lineTo(x + by, y + h);
    context.lineTo(x, y + h - by);
    context.lineTo(x, y + by);
    context.closePath();
  }
}

/** @param {string} kind @param {string} text @returns {HTMLElement} A line of the key, with its colour. */
function keyLine(kind, text) {
  const [line, space] = [document.createElement("li"), "http://www.w3.org/2000/svg"];
  const [picture, square] = [document.createElementNS(space, "svg"), document.createElementNS(space, "rect")];
  picture.setAttribute("class", "key");
  picture.setAttribute("aria-hidden", "true");
  square.setAttribute("class", `k-${kind}`);
  for (const one of [picture, square]) { one.setAttribute("width", "12"); one.setAttribute("height", "12"); }
  picture.append(square);
  line.append(picture, ` ${text}`);
  return line;
}
