// The example explorer. Data come as scripts (a page from file:// may load those): benchIndex once, benchChunk on demand.
(() => {
  "use strict";
  const PAGE = 48;
  const find = (id) => document.getElementById(id);
  const list = find("examples"), dialog = find("detail");
  const chunks = new Map(), waiting = new Map();
  let data = null, shown = [], page = 0, current = -1;

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const shorts = (text) => new Int16Array(bytes(text).buffer);
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const name = (cell) => (cell.clean ? "no perturbation" : cell.name);
  const className = (label) => (label < 0 ? "–" : data.classes[label]);
  const margin = (hundredths) => (hundredths / 100).toFixed(2).replace("-", "−");
  const right = (i) => !data.has_clean || data.clean[i] === data.labels[i];
  const broken = (cell, i) => (cell.broken[i >> 3] >> (i & 7)) & 1;
  const fell = (i) => right(i) && data.shown_cell[i] >= 0 && data.shown_pred[i] !== data.labels[i];

  window.benchIndex = (index) => {
    data = index;
    for (const field of ["labels", "clean", "shown_cell", "shown_pred", "shown_margin"]) data[field] = shorts(index[field]);
    for (const cell of data.cells) cell.broken = bytes(cell.broken);
    const classes = find("class");
    data.classes.forEach((label, i) => classes.append(element("option", { value: i, textContent: label })));
    const group = element("optgroup", { label: "Broken by" }), apart = element("optgroup", { label: "Broken by, outside the threat model" });
    data.cells.forEach((cell, i) => {
      if (cell.clean) return;
      const of = cell.survivors ? ` of ${cell.shown} shown` : "";
      const text = `${name(cell)} (${cell.breaks}${of}${cell.done ? "" : ", not complete"})`;
      (cell.inside ? group : apart).append(element("option", { value: `cell-${i}`, textContent: text }));
    });
    const outcome = find("outcome");
    for (const one of [group, apart]) if (one.children.length) outcome.append(one);
    if (!data.clean_sheets) say("The pictures of these examples are not on this machine; the answers are.");
    else if (!data.magnified.some((factor) => factor > 0)) say("The adversarial images of this board were not kept; the answers were.");
    else if (data.magnified.length < data.n) say(`Adversarial pictures of the first ${data.magnified.length} examples are here; “bench leaderboard --pictures N” shows more.`);
    for (const control of [classes, outcome]) control.addEventListener("change", () => { page = 0; draw(); });
    draw();
    fromAddress();
  };
  window.benchChunk = (number, chunk) => {
    chunks.set(number, { pred: shorts(chunk.pred), margin: shorts(chunk.margin) });
    (waiting.get(number) || []).forEach((done) => done(chunks.get(number)));
    waiting.delete(number);
  };
  const chunk = (number) => new Promise((done) => {
    if (chunks.has(number)) return done(chunks.get(number));
    if (waiting.has(number)) return waiting.get(number).push(done);
    waiting.set(number, [done]);
    document.head.append(element("script", { src: `${data.sheets}/${String(number).padStart(5, "0")}.js` }));
  });
  const say = (text) => { const note = find("missing"); note.textContent = text; note.hidden = false; };

  const chosen = () => {
    const label = find("class").value, outcome = find("outcome").value;
    const cell = outcome.startsWith("cell-") ? data.cells[Number(outcome.slice(5))] : null;
    const keep = (i) => {
      if (label !== "" && data.labels[i] !== Number(label)) return false;
      if (cell) return broken(cell, i);
      if (outcome === "held") return right(i) && data.shown_cell[i] >= 0 && !fell(i);
      if (outcome === "wrong") return !right(i);
      if (outcome === "broken") return fell(i);
      return true;
    };
    return Array.from({ length: data.n }, (_, i) => i).filter(keep);
  };

  const picture = (kind, i, size) => {
    const box = element("span", { className: "picture" });
    const sheet = String(Math.floor(i / data.chunk)).padStart(5, "0"), place = i % data.chunk;
    const missing = kind === "clean" ? !data.clean_sheets : !(data.magnified[i] > 0);
    box.style.width = `${size}px`;
    box.style.height = data.width ? `${(size * data.height) / data.width}px` : `${size}px`;
    if (missing) { box.classList.add("absent"); return box; }
    const file = kind === "clean" ? `${data.clean_sheets}/${sheet}.png` : `${data.sheets}/${sheet}-${kind}.png`;
    const across = data.columns, down = Math.ceil(data.chunk / across);
    box.style.backgroundImage = `url("${file}")`;
    box.style.backgroundSize = `${across * 100}% ${down * 100}%`;
    box.style.backgroundPosition = `${((place % across) / (across - 1)) * 100}% ${(Math.floor(place / across) / (down - 1)) * 100}%`;
    return box;
  };

  const verdict = (i) => {
    if (!right(i)) return ["wrong at once", "wrong"];
    if (data.shown_cell[i] < 0) return ["not attacked", "open"];
    return fell(i) ? ["broken", "fell"] : ["held", "held"];
  };

  const card = (i) => {
    const [text, kind] = verdict(i);
    const cell = data.shown_cell[i] >= 0 ? data.cells[data.shown_cell[i]] : null;
    const answers = element("span", { className: "answers" }, element("b", { textContent: className(data.labels[i]) }));
    answers.append(right(i) ? "" : ` seen as ${className(data.clean[i])}`);
    if (fell(i)) answers.append(` → ${className(data.shown_pred[i])}`);
    const how = cell && right(i) ? `${fell(i) ? "first by" : "closest:"} ${name(cell)}, margin ${margin(data.shown_margin[i])}` : "";
    const button = element("button", { type: "button", className: `example ${kind}` },
      element("span", { className: "pictures" }, picture("clean", i, 72), picture("adversarial", i, 72)),
      element("span", { className: "tag", textContent: text }), answers, element("span", { className: "how", textContent: how }));
    button.dataset.example = i;
    button.setAttribute("aria-label", `Example ${i}: ${answers.textContent}, ${text}. ${how}`);
    button.addEventListener("click", () => open(i));
    return element("li", {}, button);
  };

  const draw = () => {
    shown = chosen();
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    const part = shown.slice(page * PAGE, (page + 1) * PAGE);
    list.replaceChildren(...part.map(card));
    find("where").textContent = shown.length ? `${page * PAGE + 1} to ${page * PAGE + part.length} of ${shown.length.toLocaleString("en")}` : "none";
    find("back").disabled = page === 0;
    find("next").disabled = page >= pages - 1;
  };

  const open = async (i) => {
    current = i;
    const cell = data.shown_cell[i] >= 0 ? data.cells[data.shown_cell[i]] : null;
    find("detail-title").textContent = `Example ${i}: ${className(data.labels[i])}`;
    const at = right(i) ? `Right without a perturbation.` : `Taken for ${className(data.clean[i])} without any perturbation.`;
    const then = !cell ? "" : data.shown_pred[i] === data.labels[i] ? ` Closest call: ${name(cell)}, still right.` : ` ${fell(i) ? "Broken first by" : "Under"} ${name(cell)}: taken for ${className(data.shown_pred[i])}.`;
    find("detail-story").textContent = at + then;
    const factor = data.magnified[i] || 0;
    const captioned = (kind, text) => element("figure", {}, picture(kind, i, 176), element("figcaption", { textContent: text }));
    find("detail-pictures").replaceChildren(captioned("clean", "The image"), captioned("adversarial", cell ? name(cell) : "Adversarial"),
      captioned("difference", factor ? `The difference × ${factor.toFixed(factor < 10 ? 1 : 0)}` : "The difference"));
    find("detail-rows").replaceChildren();
    const place = shown.indexOf(i);
    find("detail-back").disabled = place <= 0;
    find("detail-next").disabled = place < 0 || place >= shown.length - 1;
    if (!dialog.open) dialog.showModal();
    history.replaceState(null, "", `#example-${i}`);
    const own = await chunk(Math.floor(i / data.chunk));
    if (current !== i) return;
    const from = (i % data.chunk) * data.cells.length;
    const all = data.cells.map((one, c) => ({ one, pred: own.pred[from + c], margin: own.margin[from + c] }));
    const rows = all.filter((row) => row.pred >= 0).sort((a, b) => a.margin - b.margin);
    const title = (one) => element("td", {}, element("code", { textContent: name(one) }), one.inside ? "" : " outside the threat model");
    find("detail-rows").replaceChildren(
      ...rows.map(({ one, pred, margin: m }) => element("tr", { className: pred === data.labels[i] ? "" : "lost" }, title(one),
        element("td", { textContent: `${className(pred)}${pred === data.labels[i] ? "" : ", wrong"}` }), element("td", { className: "n", textContent: margin(m) }))),
      ...all.filter((row) => row.pred < 0 && row.one.survivors).map(({ one }) => element("tr", { className: "unseen" }, title(one),
        element("td", { textContent: "not shown" }), element("td", { className: "n", textContent: "–" }))));
  };
  const step = (by) => { const i = shown[shown.indexOf(current) + by]; if (i !== undefined) open(i); };
  const fromAddress = () => { const found = /^#example-(\d+)$/.exec(location.hash); if (found && Number(found[1]) < data.n) open(Number(found[1])); };

  find("back").addEventListener("click", () => { page -= 1; draw(); scrollTo(0, 0); });
  find("next").addEventListener("click", () => { page += 1; draw(); scrollTo(0, 0); });
  find("detail-back").addEventListener("click", () => step(-1));
  find("detail-next").addEventListener("click", () => step(1));
  find("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search);
    const card = list.querySelector(`[data-example="${current}"]`);
    if (card) card.focus();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
})();
