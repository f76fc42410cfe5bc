// Drives a server with the npm package `openai`; prints a JSON document of what it saw.
// usage: node drive_openai.mjs BASE_URL    (run where node_modules holds the package)
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const loaded = require("openai");
const OpenAI = loaded.default ?? loaded;
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "x", maxRetries: 0 });
const threads = client.beta.threads;
const seen = {};
const outputs = (run) =>
  run.required_action.submit_tool_outputs.tool_calls.map((call) => ({ tool_call_id: call.id, output: "42" }));

const assistant = await client.beta.assistants.create({
  model: "round",
  name: "Test Assistant",
  tools: [{ type: "function", function: { name: "f", parameters: { type: "object" } } }],
});
seen.assistants = [];
for await (const entry of client.beta.assistants.list()) seen.assistants.push(entry.name);
const thread = await threads.create({ messages: [{ role: "user", content: "hi" }] });
let run = await threads.runs.createAndPoll(thread.id, { assistant_id: assistant.id });
seen.first = run.status;
run = await threads.runs.submitToolOutputsAndPoll(run.id, { thread_id: thread.id, tool_outputs: outputs(run) });
seen.second = run.status;
seen.text = (await threads.messages.list(thread.id)).data[0].content[0].text.value;

const calls = [];
const first = threads.runs.stream(thread.id, { assistant_id: assistant.id });
first.on("toolCallDone", (call) => calls.push(call.function.name + call.function.arguments));
run = await first.finalRun();
let text = "";
const second = threads.runs.submitToolOutputsStream(run.id, { thread_id: thread.id, tool_outputs: outputs(run) });
second.on("textDelta", (delta) => (text += delta.value ?? ""));
await second.finalRun();
seen.streamed = [calls, text];

const events = await threads.createAndRun({ assistant_id: assistant.id, model: "plain", stream: true });
seen.events = [];
for await (const event of events) if (!event.event.includes("delta")) seen.events.push(event.event);
const upload = await client.files.create({
  file: await (loaded.toFile ?? OpenAI.toFile)(Buffer.from("Fires and water"), "a.txt"),
  purpose: "assistants",
});
const store = await client.vectorStores.create({ name: "facts" });
const batch = await client.vectorStores.fileBatches.createAndPoll(store.id, { file_ids: [upload.id] });
seen.batch = batch.status;
try {
  await threads.runs.cancel(run.id, { thread_id: thread.id });
} catch (error) {
  seen.error = error.error.message;
}
seen.deleted = (await threads.delete(thread.id)).deleted;
console.log(JSON.stringify(seen));
