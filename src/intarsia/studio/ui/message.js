// A new file clears what was said of the last one; one that cannot be what its field is for is not sent.
const fields = {
  "#load-file": {
    endings: [".safetensors"],
    largest: MODULE_BYTES,
    other: "is not a .safetensors file: choose a module or a composition",
    smaller: "give its path to intarsia studio instead",
  },
  "#sample-picture": {
    endings: PICTURE_ENDINGS,
    largest: PICTURE_BYTES,
    other: `is not a picture that is read here: choose one that ends in ${PICTURE_ENDINGS.join(", ")}`,
    smaller: "make the picture smaller",
  },
};

function refusal(file, field) {
  const name = file.name.toLowerCase();
  if (!field.endings.some((ending) => name.endsWith(ending))) return `${file.name}: ${field.other}`;
  if (file.size > field.largest) {
    const [size, most] = [file.size, field.largest].map((bytes) => (bytes / 2 ** 20).toFixed(0));
    return `${file.name}: has ${size} MB, the limit is ${most} MB: ${field.smaller}`;
  }
  return "";
}

function look(event, files) {
  const place = Object.keys(fields).find((id) => event.target.closest(id));
  if (!place || !files || !files.length) return;
  const words = refusal(files[0], fields[place]);
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
