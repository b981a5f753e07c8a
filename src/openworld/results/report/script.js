"use strict";
// The page also works without this script. The script adds interactive details. It inserts data as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function element(name, className, text) {
  const created = document.createElement(name);
  if (className) created.className = className;
  if (text !== undefined) created.textContent = text;
  return created;
}

// Light and dark mode: that of the system, until the user presses the button ------------------------------------------

const root = document.documentElement;
const themeButton = document.getElementById("theme");
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark.matches);

function showTheme() {
  themeButton.textContent = isDark() ? "light" : "dark";
}
function withStorage(action) {
  try { return action(localStorage); } catch { return null; } // Some browsers forbid storage for a local file.
}
const savedTheme = withStorage((storage) => storage.getItem("openworld-theme"));
if (savedTheme === "light" || savedTheme === "dark") root.dataset.theme = savedTheme;
themeButton.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  withStorage((storage) => storage.setItem("openworld-theme", root.dataset.theme));
  showTheme();
});
systemIsDark.addEventListener("change", showTheme);
showTheme();

// Pictures: picture n is cell n of one large image --------------------------------------------------------------------

function piece(cell, size, caption) {
  const { image, side, columns, rows } = data.atlas;
  const shown = element(caption ? "button" : "div", "piece");
  Object.assign(shown.style, {
    backgroundImage: `url(${image})`,
    backgroundSize: `${columns * size}px ${rows * size}px`,
    backgroundPosition: `-${(cell % columns) * size}px -${Math.floor(cell / columns) * size}px`,
    imageRendering: side <= 16 ? "pixelated" : "auto",
  });
  if (caption) {
    shown.type = "button";
    shown.title = caption;
    shown.setAttribute("aria-label", caption);
    shown.addEventListener("click", () => enlarge(cellImage(cell), caption, side <= 16));
  }
  return shown;
}

const sheet = new Image();
if (data.atlas) sheet.src = data.atlas.image;

function cellImage(cell) {
  const { side, columns } = data.atlas;
  const canvas = element("canvas");
  canvas.width = canvas.height = side;
  const [x, y] = [cell % columns, Math.floor(cell / columns)];
  canvas.getContext("2d").drawImage(sheet, x * side, y * side, side, side, 0, 0, side, side);
  return canvas.toDataURL();
}

const dialog = document.getElementById("enlarged");
function enlarge(source, caption, isSmall) {
  const image = dialog.querySelector("img");
  image.src = source;
  image.alt = caption;
  image.className = isSmall ? "pixels" : "";
  dialog.querySelector("pre").textContent = caption;
  dialog.showModal();
}
dialog.addEventListener("click", (event) => {
  if (event.target === dialog || event.target.tagName === "BUTTON") dialog.close();
});
for (const thumb of all(".thumb")) {
  const image = thumb.querySelector("img");
  thumb.addEventListener("click", () => enlarge(image.src, thumb.title, image.classList.contains("pixels")));
}

// Galleries: search, open, close. In print all galleries are open -----------------------------------------------------

for (const section of all("section")) {
  const cards = all("details[data-name]", section);
  const openAll = (open) => () => cards.forEach((card) => { card.open = open; });
  section.querySelector(".open-all")?.addEventListener("click", openAll(true));
  section.querySelector(".close-all")?.addEventListener("click", openAll(false));
  section.querySelector(".find")?.addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const card of cards) card.hidden = !card.dataset.name.includes(wanted);
  });
}
let closed = [];
addEventListener("beforeprint", () => {
  closed = all("details:not([open])");
  for (const card of closed) card.open = true;
});
addEventListener("afterprint", () => closed.forEach((card) => { card.open = false; }));

for (const button of all(".copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch { // Without access to the clipboard, select the text so that the user can copy it.
      getSelection().selectAllChildren(code);
    }
  });
}

// Confusion matrix: details of a row, a column or a cell --------------------------------------------------------------

function showConfusion({ counts, rows, columns, matches, examples }) {
  const matrix = document.querySelector(".confusion");
  const panel = document.getElementById("zoom");
  const chooser = document.getElementById("choose-class");
  const isRight = (row, column) => matches[column] === row;

  function proportionBars(entries, total) {
    const largest = Math.max(...entries.map((entry) => entry.count));
    return entries.sort((a, b) => b.count - a.count).map(({ name, count, right, row, column }) => {
      const line = element("button", right ? "share right" : "share");
      line.type = "button";
      line.title = `${name}: ${count} of ${total}`;
      const [room, bar] = [element("span"), element("div", "bar")];
      bar.style.width = `${(100 * count) / largest}%`;
      room.append(bar);
      line.append(element("span", "", name), room, element("span", "", `${count} · ${((100 * count) / total).toFixed(0)} %`));
      line.addEventListener("click", () => choose(row, column));
      return line;
    });
  }
  function pictures(heading, chosen) {
    if (!chosen.length) return [];
    const strip = element("div", "strip");
    for (const { cell, caption } of chosen.slice(0, 24)) {
      strip.append(cell === null ? element("span", "name", caption.split("\n")[0]) : piece(cell, 56, caption));
    }
    return [element("h4", "", heading), strip];
  }
  function ofRow(row) {
    const found = counts[row].map((count, column) => ({ name: columns[column], count, right: isRight(row, column), row, column }));
    const total = counts[row].reduce((a, b) => a + b, 0);
    const lines = found.filter((entry) => entry.count);
    return [
      element("h3", "", `True class ${rows[row]}`),
      element("p", "small", total ? `${total} images. Their predicted classes:` : "No image has this true class."),
      ...proportionBars(lines, total),
      ...pictures("mistakes with the highest confidence", examples.filter((one) => one.row === row)),
    ];
  }
  function ofColumn(column) {
    const found = counts.map((line, row) => ({ name: rows[row], count: line[column], right: isRight(row, column), row, column }));
    const lines = found.filter((entry) => entry.count);
    const total = lines.reduce((sum, entry) => sum + entry.count, 0);
    const match = matches[column];
    const matched = match === undefined ? ", matches no true class" : match === column && rows[match] === columns[column] ? "" : `, matches ${rows[match]}`;
    return [
      element("h3", "", `Predicted class ${columns[column]}`),
      element("p", "small", total ? `${total} images${matched}. Their true classes:` : "No image is predicted as this class."),
      ...proportionBars(lines, total),
      ...pictures("mistakes with the highest confidence", examples.filter((one) => one.column === column)),
    ];
  }
  function ofCell(row, column) {
    const verdict = isRight(row, column) ? "correct" : "mistakes";
    const chosen = examples.filter((one) => one.row === row && one.column === column);
    const back = element("button", "", `all images of true class ${rows[row]}`);
    back.type = "button";
    back.addEventListener("click", () => choose(row, null));
    return [
      element("h3", "", `True class ${rows[row]}, predicted as ${columns[column]}`),
      element("p", "small", `${counts[row][column]} images: ${verdict}`),
      ...pictures("highest confidence", chosen),
      element("p"), back,
    ];
  }
  function choose(row, column) {
    const nothing = row === null && column === null;
    matrix.classList.toggle("chosen", !nothing);
    const isChosen = (mark) =>
      (row === null || +mark.dataset.row === row) && (column === null || +mark.dataset.column === column);
    for (const cell of all(".cell", matrix)) cell.classList.toggle("chosen", !nothing && isChosen(cell));
    for (const label of all(".label", matrix)) {
      const { row: labelRow, column: labelColumn } = label.dataset;
      label.classList.toggle("chosen", !nothing && (labelRow === String(row) || labelColumn === String(column)));
    }
    chooser.value = nothing || (row !== null && column !== null) ? "" : row !== null ? `row ${row}` : `column ${column}`;
    panel.replaceChildren(...(
      nothing ? [element("p", "empty", "Nothing is chosen yet.")]
        : column === null ? ofRow(row) : row === null ? ofColumn(column) : ofCell(row, column)));
  }
  const number = (text) => (text === undefined ? null : +text);
  function pick(event) {
    const mark = event.target.closest(".cell, .label");
    choose(number(mark?.dataset.row), number(mark?.dataset.column));
  }
  matrix.addEventListener("click", pick);
  matrix.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick(event);
    }
  });
  chooser.addEventListener("change", () => {
    const [kind, chosen] = chooser.value.split(" ");
    choose(kind === "row" ? +chosen : null, kind === "column" ? +chosen : null);
  });
}
if (data.confusion) showConfusion(data.confusion);

// Map: shows the image at the pointer, or the image that the arrow keys select ----------------------------------------

function showMap({ points, colours }) {
  const map = document.getElementById("feature-map");
  const card = document.getElementById("map-card");
  const marks = all("path", map);
  const legends = all(".map-legend");
  let [colouring, at, pinned] = ["predicted", -1, null];

  const place = (point) => [((20 + 760 * point.x) / 800) * map.clientWidth, ((20 + 560 * point.y) / 600) * map.clientHeight];

  function show(number) {
    marks[at]?.classList.remove("at");
    at = number;
    card.hidden = number < 0;
    if (number < 0) return;
    marks[number].classList.add("at");
    const point = points[number];
    card.replaceChildren(...(point.cell === null ? [] : [piece(point.cell, 112)]), point.caption);
    const [x, y] = place(point);
    const clamped = (value, most) => `${Math.max(4, Math.min(value, most - 4))}px`;
    const left = x + 16 + card.offsetWidth > map.clientWidth ? x - 16 - card.offsetWidth : x + 16;
    card.style.left = clamped(left, map.clientWidth - card.offsetWidth);
    card.style.top = clamped(y - card.offsetHeight / 2, Math.max(map.clientHeight - card.offsetHeight, 8));
  }
  function nearest(x, y, allowed) {
    let [best, found] = [Infinity, -1];
    points.forEach((point, number) => {
      const [px, py] = place(point);
      const distance = Math.hypot(px - x, py - y);
      if (distance < best && allowed(px - x, py - y, number)) [best, found] = [distance, number];
    });
    return [found, best];
  }
  function pointTo(event) {
    const box = map.getBoundingClientRect();
    const isVisible = (_x, _y, number) => !marks[number].classList.contains("dim");
    const [found, distance] = nearest(event.clientX - box.left, event.clientY - box.top, isVisible);
    show(distance < 18 ? found : -1);
  }
  map.addEventListener("pointermove", pointTo);
  map.addEventListener("pointerdown", pointTo);
  map.addEventListener("pointerleave", () => show(-1));
  map.addEventListener("blur", () => show(-1));
  map.addEventListener("focus", () => { if (at < 0 && map.matches(":focus-visible")) show(0); });
  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  map.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(-1);
    const direction = directions[event.key];
    if (!direction) return;
    event.preventDefault();
    const ahead = (x, y) => {
      const along = x * direction[0] + y * direction[1];
      return along > 0.5 && along >= Math.abs(x * direction[1]) + Math.abs(y * direction[0]);
    };
    const [found] = nearest(...place(points[Math.max(at, 0)]), ahead);
    if (found >= 0) show(found);
  });

  function highlight(chosen) {
    marks.forEach((mark, number) => mark.classList.toggle("dim", chosen !== null && points[number][colouring] !== chosen));
  }
  function pin(chosen) {
    pinned = chosen;
    for (const button of all(".map-legend button")) {
      const isPinned = button.parentElement.dataset.kind === colouring && +button.dataset.class === chosen;
      button.setAttribute("aria-pressed", chosen !== null && isPinned);
    }
    highlight(chosen);
  }
  for (const button of all(".map-legend button")) {
    const number = +button.dataset.class;
    for (const enter of ["pointerenter", "focus"]) button.addEventListener(enter, () => highlight(number));
    for (const leave of ["pointerleave", "blur"]) button.addEventListener(leave, () => highlight(pinned));
    button.addEventListener("click", () => pin(pinned === number ? null : number));
  }
  for (const button of all("[data-colour]")) {
    button.addEventListener("click", () => {
      colouring = button.dataset.colour;
      for (const other of all("[data-colour]")) other.setAttribute("aria-pressed", other === button);
      for (const legend of legends) legend.hidden = legend.dataset.kind !== colouring;
      marks.forEach((mark, number) => {
        mark.style.stroke = colours[colouring][points[number][colouring]] ?? "var(--line)";
      });
      pin(null);
    });
  }
}
if (data.map) showMap(data.map);
