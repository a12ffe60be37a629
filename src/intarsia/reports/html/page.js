
// Without scripts all is there to read; these are two comforts.
for (const block of navigator.clipboard ? document.querySelectorAll("pre.commands") : []) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  const say = (word) => {
    button.textContent = word;
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(block.textContent).then(
      () => say("Copied"),
      () => { getSelection().selectAllChildren(block); say("Selected"); },
    );
  });
  block.before(button);
}
const closed = [];
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    closed.push(part);
  }
});
addEventListener("afterprint", () => {
  for (const part of closed.splice(0)) part.open = false;
});
