// Compares what the official scenarios found with the two stores: prints one line for each check, and exits with 1
// when a check that passes with the in-memory store does not pass on the broker.

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";

const BEGIN = "<!-- the table below is written by scripts/conformance.sh --write -->";
const END = "<!-- end of the table -->";

const { values: options } = parseArgs({
  options: {
    results: { type: "string" },
    scenarios: { type: "string" },
    tasks: { type: "string" },
    write: { type: "string" },
  },
});

/** All checks of a store: "scenario / check" (numbered where a scenario reports one twice) -> the check. */
function checks(store) {
  const found = new Map();
  const root = join(options.results, store);
  for (const scenario of readdirSync(root).sort()) {
    for (const run of readdirSync(join(root, scenario))) {
      for (const check of JSON.parse(readFileSync(join(root, scenario, run, "checks.json"), "utf8"))) {
        let name = `${scenario} / ${check.id}`;
        for (let count = 2; found.has(name); count += 1) name = `${scenario} / ${check.id} (${count})`;
        found.set(name, check);
      }
    }
  }
  return found;
}

const passes = (check) => check?.status === "SUCCESS";
const status = (check) => (check === undefined ? "absent" : check.status.toLowerCase());

const memory = checks("memory");
const remote = checks("remote");
const rows = [...new Set([...memory.keys(), ...remote.keys()])].map((name) => {
  const [scenario, check] = name.split(" / ");
  const [before, after] = [memory.get(name), remote.get(name)];
  const lost = passes(before) && !passes(after);
  const verdict = lost ? "LOST" : status(before) === status(after) ? "same" : "differs";
  return { scenario, check, before, after, lost, verdict };
});

const lines = ["| scenario | check | in memory | on the broker | |", "|---|---|---|---|---|"];
for (const { scenario, check, before, after, verdict } of rows) {
  lines.push(`| ${scenario} | ${check} | ${status(before)} | ${status(after)} | ${verdict} |`);
}
const count = (of) => rows.filter((row) => passes(row[of])).length;
const lost = rows.filter((row) => row.lost);
const { name, version } = JSON.parse(readFileSync(options.scenarios, "utf8"));
lines.push(
  "",
  `\`${name}\` ${version}: ${rows.length} checks, ${count("before")} pass in memory, ${count("after")} on the ` +
    `broker, ${lost.length} lost. The run on the broker made ${options.tasks} tasks there.`,
);
console.log(lines.join("\n"));

for (const { scenario, check, before, after } of rows) {
  for (const [store, outcome] of [["in memory", before], ["on the broker", after]]) {
    if (outcome?.errorMessage) console.log(`\n${scenario} / ${check} ${store}: ${outcome.errorMessage}`);
  }
}

if (count("before") === 0) {
  console.error("no check passes even in memory: the scenarios did not reach the server");
  process.exit(1);
}
if (options.write) {
  const page = readFileSync(options.write, "utf8");
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`${options.write} has no place for the table`);
  const table = `${BEGIN}\n\n${lines.join("\n")}\n\n`;
  writeFileSync(options.write, page.slice(0, begin) + table + page.slice(end));
}
process.exit(lost.length === 0 ? 0 : 1);
