"use strict";
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // A link to something folded away opens what it lies in.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Paper has nothing to click on.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    folded.forEach(fold => { fold.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach(fold => { fold.open = false; }));

  // Tables whose headers sort them: numbers as numbers, what is missing last either way.
  const value = (row, column) => {
    const cell = row.cells[column], key = cell.dataset.sort ?? cell.textContent.trim();
    if (key === "" || key === "–") return null;
    return key === "inf" ? Infinity : isNaN(key) ? key : Number(key);
  };
  const order = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  const sort = (table, column, sign) => all("tbody", table).forEach(body => {
    const rows = all("tr:not(.group)", body).map(row => [value(row, column), row]);
    rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : sign * order(a, b));
    body.append(...rows.map(([, row]) => row));
  });
  all("table.sortable").forEach(table => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        sort(table, column, falling ? -1 : 1);
      });
    });
  });

  // Pictures that enlarge: what a .zoom holds becomes a button, and a dialog shows it as large as the window.
  const dialog = document.createElement("dialog");
  dialog.className = "enlarged";
  dialog.setAttribute("aria-label", "Enlarged picture");
  const close = document.createElement("button");
  close.type = "button";
  close.className = "close";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  all(".zoom").forEach(box => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "enlarge";
    button.title = "Enlarge";
    button.append(...box.childNodes);
    box.append(button);
    button.addEventListener("click", () => {
      const pictures = document.createElement("div"), caption = document.createElement("p");
      const beside = box.dataset.beside ? all("img", document.getElementById(box.dataset.beside)) : [];
      pictures.className = box.classList.contains("chart") ? "pictures chart" : "pictures";
      pictures.append(...[...beside, ...all("img", button)].map(image => image.cloneNode()));
      caption.textContent = box.dataset.caption || box.closest("figure")?.querySelector("figcaption")?.textContent || "";
      dialog.replaceChildren(close, pictures, caption);
      dialog.showModal();
    });
  });
})();
