// The page: controls, what they say, and the table that follows them. An address such as
// #context=131072&batch=16&tp=8&kv=fp8_e4m3&memory=141 sets them on arrival.

const plan = JSON.parse(document.getElementById("plan").textContent);
const powers = (first, last) => Array.from({ length: last - first + 1 }, (_, i) => 2 ** (first + i));
const sizes = (count) => (count >= 2 ** 20 ? `${count / 2 ** 20}M` : count >= 1024 ? `${count / 1024}k` : `${count}`);

// A slider steps through its values; a choice picks one by name.
const sliders = {
  context: { label: "Context", values: powers(9, 20), start: 8192, say: (v) => `${sizes(v)} tokens` },
  batch: { label: "Batch", values: powers(0, 10), start: 16, say: (v) => `${v} sequence${v > 1 ? "s" : ""}` },
  tp: { label: "Tensor parallel", values: plan.tps, start: 1, say: (v) => `${v} device${v > 1 ? "s" : ""}` },
  kv: { label: "Cache dtype", values: plan.kv_dtypes, start: plan.dtype, say: (v) => v },
  memory: { label: "Memory per device", values: Array.from({ length: 320 }, (_, i) => i + 1), say: (v) => `${v} GB` },
};
const choices = {
  model: { label: "Model", options: plan.models.map((it) => [it.name, it.name]) },
  device: { label: "Device profile", options: plan.devices.map((it) => [it.id, it.name]) },
};
const inputs = {};

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function control(name, label, input) {
  inputs[name] = input;
  const said = element("output", { id: `${name}-said`, for: `${name}-input` });
  const title = element("label", { for: `${name}-input` }, label);
  return element("div", { class: "control" }, title, input, ...(sliders[name] ? [said] : []));
}

function buildControls() {
  const form = document.getElementById("controls");
  for (const [name, it] of Object.entries(choices)) {
    const options = it.options.map(([value, text]) => element("option", { value }, text));
    form.append(control(name, it.label, element("select", { id: `${name}-input` }, ...options)));
  }
  for (const [name, it] of Object.entries(sliders)) {
    const range = { id: `${name}-input`, type: "range", min: 0, max: it.values.length - 1, step: 1 };
    form.append(control(name, it.label, element("input", range)));
  }
  form.addEventListener("input", (event) => {
    if (event.target === inputs.device) set("memory", profileMemory());
    redraw();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
}

// Move a slider to the value nearest to the one wanted.
function set(name, wanted) {
  if (choices[name]) {
    if (choices[name].options.some(([value]) => value === wanted)) inputs[name].value = wanted;
    return;
  }
  const { values } = sliders[name];
  const named = values.indexOf(wanted);
  const far = (value) => Math.abs(value - Number(wanted));
  const near = values.reduce((best, value, i) => (far(value) < far(values[best]) ? i : best), 0);
  inputs[name].value = named >= 0 ? named : near;
}

function value(name) {
  return choices[name] ? inputs[name].value : sliders[name].values[Number(inputs[name].value)];
}

const device = () => plan.devices.find((it) => it.id === value("device"));
const profileMemory = () => Math.round(device().memory_bytes / 1e9);

function fromAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  set("device", asked.get("device") ?? plan.device);
  set("memory", profileMemory());
  for (const name of [...Object.keys(choices), ...Object.keys(sliders)]) if (asked.has(name)) set(name, asked.get(name));
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = count < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(count) / 10));
  return `${Number((count / 1024 ** power).toPrecision(4))} ${units[power]}`;
}

const digits = (number) => number.toLocaleString("en-US", { maximumSignificantDigits: 4 });

// A cell with its exact value, and a bar as long as it is of the largest in its column.
function cell(number, text, largest, name) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = largest > 0 ? `${(100 * number) / largest}%` : "0";
  bar.style.background = plan.colours[name];
  return element("td", { "data-value": number }, text, bar);
}

function tableRow(row, rows, at) {
  const head = element("th", { scope: "row" }, row.name);
  if (row.reason) return element("tr", {}, head, element("td", { colspan: 6, class: "reason" }, row.reason));
  const largest = (column) => Math.max(...rows.map((it) => it[column] ?? 0));
  const shown = (column, say) => cell(row[column], say(row[column]), largest(column), row.name);
  const fits = row.fit === null ? "weights unknown" : row.fit < at.batch ? `${digits(row.fit)}: too few` : digits(row.fit);
  const limited = row.limited === "kernel" ? ", kernel-limited" : "";
  const made = element(
    "tr",
    {},
    head,
    shown("token", bytes),
    shown("sequence", bytes),
    row.fit === null ? element("td", {}, fits) : cell(row.fit, fits, largest("fit"), row.name),
    shown("attend", digits),
    shown("step", (us) => `${digits(us)} (${row.bound}${limited})`),
    shown("model", digits),
  );
  if (row.fit !== null && row.fit < at.batch) made.className = "too-large";
  return made;
}

function redraw() {
  for (const [name, it] of Object.entries(sliders)) {
    const said = it.say(value(name));
    document.getElementById(`${name}-said`).textContent = said;
    inputs[name].setAttribute("aria-valuetext", said);
  }
  const at = Object.fromEntries(Object.keys(sliders).map((name) => [name, value(name)]));
  at.memory *= 1e9;
  const model = plan.models.find((it) => it.name === value("model"));
  const rows = model.variants.map((variant) => plannedRow(plan, model, variant, device(), at));
  document.querySelector("#planned tbody").replaceChildren(...rows.map((row) => tableRow(row, rows, at)));
  const said = Object.entries(sliders).map(([name, it]) => it.say(value(name)));
  document.getElementById("planned-caption").textContent =
    `${model.name} on ${device().name}, ${said.join(", ")}: predicted`;
}

buildControls();
for (const [name, it] of Object.entries(sliders)) if (it.start !== undefined) set(name, it.start);
fromAddress();
redraw();
addEventListener("hashchange", () => {
  if (location.hash.includes("=")) {
    fromAddress();
    redraw();
  }
});
