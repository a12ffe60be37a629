// A new file clears what was said of the last one; one that cannot be a module is not sent.
function refusal(files) {
  const file = files && files[0];
  if (!file) return "";
  if (!file.name.toLowerCase().endsWith(".safetensors")) {
    return `${file.name}: is not a .safetensors file: choose a module or a composition`;
  }
  if (file.size > LARGEST) {
    const size = (file.size / 2 ** 20).toFixed(0);
    return `${file.name}: has ${size} MB, the limit is ${LARGEST / 2 ** 20} MB: give its path to intarsia studio instead`;
  }
  return "";
}

function look(event, files) {
  if (!event.target.closest("#load-file") || !files || !files.length) return;
  const words = refusal(files);
  const line = document.createElement("p");
  line.className = "bad";
  line.textContent = words;
  props.value = words ? line.outerHTML : "";
  if (!words) return;
  event.stopImmediatePropagation();
  event.preventDefault();
  if (event.type === "change") event.target.value = "";
}

document.addEventListener("change", (event) => look(event, event.target.files), true);
document.addEventListener("drop", (event) => look(event, event.dataTransfer?.files), true);
