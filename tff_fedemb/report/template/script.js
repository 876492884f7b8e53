"use strict";
for (const map of document.querySelectorAll("[data-map]")) {
  const section = map.parentElement;
  const svg = map.querySelector("svg");
  const points = [...map.querySelectorAll(".point")];
  const projections = [...map.querySelectorAll("[data-projection]")];
  const groups = [...map.querySelectorAll("button[data-group]")];
  for (const hidden of map.querySelectorAll(".switch, [data-hint]")) {
    hidden.hidden = false;
  }
  for (const button of projections) {
    button.addEventListener("click", () => {
      const name = button.dataset.projection;
      for (const point of points) {
        point.setAttribute("transform", `translate(${point.dataset[name]})`);
      }
      for (const other of projections) {
        other.setAttribute("aria-pressed", String(other === button));
        section.querySelector(`.${other.dataset.projection}-only`).hidden =
          other !== button;
      }
    });
  }
  for (const button of groups) {
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      for (const other of groups) {
        other.setAttribute("aria-pressed", String(pressed && other === button));
      }
      for (const point of points) {
        point.classList.toggle(
          "faint", pressed && point.dataset.group !== button.dataset.group);
      }
    });
  }
  // What is pointed at comes to the front; a tap stands for pointing.
  for (const point of points) {
    const raise = () => {
      for (const other of points) other.classList.toggle("up", other === point);
      if (svg.lastElementChild !== point) svg.append(point);
    };
    point.addEventListener("pointerenter", raise);
    point.addEventListener("click", raise);
  }
  svg.addEventListener("pointerleave", () => {
    for (const point of points) point.classList.remove("up");
  });
}
for (const classes of document.querySelectorAll("[data-classes]")) {
  const search = classes.querySelector("[data-search]");
  const input = search.querySelector("input");
  const status = search.querySelector("[role=status]");
  const rows = [...classes.querySelectorAll("tbody tr")];
  const plain = (text) =>
    text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const names = rows.map((row) => plain(row.cells[0].textContent));
  search.hidden = false;
  input.addEventListener("input", () => {
    const wanted = plain(input.value.trim());
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !names[i].includes(wanted);
      shown += !row.hidden;
    });
    status.textContent = wanted ? `${shown} of ${rows.length}` : "";
  });
}
// What is folded is printed as well.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const details of opened) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
});
