// A cell of the matrix chooses its pair.
element.addEventListener("click", (event) => {
  const cell = event.target.closest("button[data-one]");
  if (cell) trigger("click", { one: cell.dataset.one, other: cell.dataset.other });
});
