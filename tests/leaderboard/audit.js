// What an accessibility checker would look at first, from the computed styles of the page as it is drawn.
(() => {
  const problems = [];
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const light = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m); return (x + 0.05) / (y + 0.05); };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), rgba("Canvas"));
  };
  const seen = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  const say = (element, text) => problems.push(`${text}: <${element.tagName.toLowerCase()} class="${element.getAttribute("class") || ""}"> ${(element.textContent || "").trim().slice(0, 40)}`);

  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const judged = new Set();
  let texts = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || judged.has(element) || !seen(element) || element.closest(".sr, script, style, noscript, title")) continue;
    if (element.closest("dialog:not([open])") || (document.querySelector("dialog[open]") && !element.closest("dialog"))) continue;
    judged.add(element);
    texts += 1;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const background = behind(element);
    const colour = over(rgba(element.closest("svg") ? style.fill : style.color), background);
    const needed = size >= 24 || (size >= 18.66 && bold) ? 3 : 4.5;
    const found = ratio(colour, background);
    if (found < needed) say(element, `contrast ${found.toFixed(2)}, needs ${needed}`);
  }

  for (const control of document.querySelectorAll("input, select, textarea, button, a[href], summary, [role=region]")) {
    const name = control.getAttribute("aria-label") || (control.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join("")
      || [...(control.labels || [])].map((label) => label.textContent).join("") || control.textContent;
    if (!name.trim()) say(control, "no name");
  }
  for (const control of document.querySelectorAll("button, select, input")) {
    const box = control.getBoundingClientRect();
    if (seen(control) && !control.closest("th") && (box.height < 16 || box.width < 16)) say(control, `a target of ${box.width}×${box.height}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) problems.push(`id ${id} twice`);
  for (const svg of document.querySelectorAll("svg")) if (!svg.hasAttribute("aria-hidden") && !svg.getAttribute("aria-label")) say(svg, "a picture without words");
  for (const head of document.querySelectorAll("th")) if (!head.hasAttribute("scope")) say(head, "a heading cell without scope");
  for (const region of document.querySelectorAll(".scroll")) if (region.tabIndex !== 0) say(region, "scrolls, but not by keyboard");
  if (document.querySelectorAll("h1").length !== 1) problems.push("not exactly one h1");
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) say(heading, `h${own} after h${level}`);
    level = own;
  }
  if (!document.documentElement.lang || !document.title || !document.querySelector("main")) problems.push("no language, title or main");
  return { problems, texts };
})()
