// The official npm package (4.x, 5.x, 6.x): poll and stream helpers, events, files, pages, errors, Azure's form.
// NODE_CLIENT_FOLDER names a folder whose node_modules holds `openai`.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(process.env.NODE_CLIENT_FOLDER + "/index.js");
const { OpenAI, AzureOpenAI, toFile } = require("openai");
const manifest = JSON.parse(readFileSync(process.env.NODE_CLIENT_FOLDER + "/node_modules/openai/package.json"));
const major = Number(manifest.version.split(".")[0]);
const { SERVER_URL: url, SERVER_KEY: apiKey } = process.env;

// Version 5 changed how the ids of a path are given: the last one stands first, the others are named.
const inThread = (id, thread_id) => (major >= 5 ? [id, { thread_id }] : [thread_id, id]);
const outputs = (run) =>
  run.required_action.submit_tool_outputs.tool_calls.map((call) => ({
    tool_call_id: call.id,
    output: "12 degrees",
  }));
const submission = (run, tool_outputs) =>
  major >= 5
    ? [run.id, { thread_id: run.thread_id, tool_outputs }]
    : [run.thread_id, run.id, { tool_outputs }];
const tool = {
  type: "function",
  function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
};

async function roundsByPolling(client) {
  const { threads, assistants } = client.beta;
  const assistant = await assistants.create({ model: "conf-weather", tools: [tool] });
  const thread = await threads.create({ messages: [{ role: "user", content: "Weather?" }] });
  const started = performance.now();
  let run = await threads.runs.createAndPoll(thread.id, { assistant_id: assistant.id });
  const rounds = [];
  while (run.status === "requires_action") {
    rounds.push(outputs(run).length);
    run = await threads.runs.submitToolOutputsAndPoll(...submission(run, outputs(run)));
  }
  assert.deepEqual([run.status, ...rounds], ["completed", 2, 1]);
  assert.ok(performance.now() - started < 3000, "the poll helpers waited");
  const seen = [];
  for await (const message of threads.messages.list(thread.id, { limit: 1, order: "asc" })) seen.push(message);
  assert.equal(seen.length, 2);
  assert.equal(seen[1].content[0].text.value, "Oslo, Bergen and Tromsø are fine.");
  const fresh = await threads.runs.retrieve(...inThread(run.id, thread.id));
  assert.equal(fresh.status, "completed");
}

async function roundsByStreams(client) {
  const { threads, assistants } = client.beta;
  const assistant = await assistants.create({ model: "conf-weather", tools: [tool] });
  const thread = await threads.create({ messages: [{ role: "user", content: "Weather?" }] });
  const heard = { created: 0, done: [], text: "", messages: 0, ends: 0 };
  const listen = (stream) =>
    stream
      .on("toolCallCreated", () => (heard.created += 1))
      .on("toolCallDone", (call) => heard.done.push(call))
      .on("textDelta", (delta) => (heard.text += delta.value ?? ""))
      .on("messageDone", () => (heard.messages += 1))
      .on("end", () => (heard.ends += 1));
  let stream = listen(threads.runs.stream(thread.id, { assistant_id: assistant.id }));
  let run = await stream.finalRun();
  while (run.status === "requires_action") {
    stream = listen(threads.runs.submitToolOutputsStream(...submission(run, outputs(run))));
    run = await stream.finalRun();
  }
  assert.equal(run.status, "completed");
  assert.deepEqual([heard.created, heard.done.length, heard.messages, heard.ends], [3, 3, 1, 3]);
  assert.deepEqual(
    heard.done.map((call) => JSON.parse(call.function.arguments).city),
    ["Oslo", "Bergen", "Tromsø"],
  );
  assert.equal(heard.text, "Oslo, Bergen and Tromsø are fine.");
  const events = [];
  for await (const event of await threads.createAndRun({
    assistant_id: assistant.id,
    model: "plain",
    stream: true,
  }))
    events.push(event.event);
  assert.equal(events[0], "thread.created");
  assert.ok(events.includes("thread.run.completed"));
}

async function builtinTools(client) {
  const { threads, assistants } = client.beta;
  const stores = client.vectorStores ?? client.beta.vectorStores;
  const file = await client.files.create({
    file: await toFile(Buffer.from("Wildfires in 2020: 58950"), "fires.md"),
    purpose: "assistants",
  });
  const store = await stores.create({ name: "facts" });
  const batch = await stores.fileBatches.createAndPoll(store.id, { file_ids: [file.id] });
  assert.deepEqual([batch.status, batch.file_counts.completed], ["completed", 1]);
  const started = performance.now();
  const more = await stores.files.uploadAndPoll(store.id, await toFile(Buffer.from("More"), "more.txt"));
  assert.equal(more.status, "completed");
  assert.ok(performance.now() - started < 3000, "the poll helper waited");
  const together = await stores.fileBatches.uploadAndPoll(store.id, {
    files: [await toFile(Buffer.from("One"), "1.txt"), await toFile(Buffer.from("Two"), "2.txt")],
  });
  assert.equal(together.file_counts.completed, 2);
  const assistant = await assistants.create({
    model: "conf-search",
    tools: [{ type: "file_search" }, { type: "code_interpreter" }],
    tool_resources: { file_search: { vector_store_ids: [store.id] } },
  });
  const run = await threads.createAndRunPoll({ assistant_id: assistant.id });
  assert.equal(run.status, "completed");
  const [message] = (await threads.messages.list(run.thread_id)).data;
  assert.equal(message.content[0].text.annotations[0].file_citation.file_id, file.id);
  const stream = threads.createAndRunStream({ assistant_id: assistant.id, model: "code" });
  const done = [];
  stream.on("toolCallDone", (call) => done.push(call));
  await stream.finalMessages();
  assert.equal(done[0].code_interpreter.outputs[0].logs, "42\n");
  const content = await client.files.content(file.id);
  assert.equal(await content.text(), "Wildfires in 2020: 58950");
  assert.ok((await (client.files.delete ?? client.files.del).call(client.files, file.id)).deleted);
}

async function cancelAndLock(client) {
  const { threads, assistants } = client.beta;
  const assistant = await assistants.create({ model: "conf-slow" });
  const run = await threads.createAndRun({ assistant_id: assistant.id });
  await assert.rejects(
    threads.messages.create(run.thread_id, { role: "user", content: "x" }),
    (error) => error.status === 400 && error.message.includes(`while a run ${run.id} is active`),
  );
  await threads.runs.cancel(...inThread(run.id, run.thread_id));
  assert.equal((await threads.runs.poll(...inThread(run.id, run.thread_id))).status, "cancelled");
}

async function leaving(client) {
  const { threads, assistants } = client.beta;
  const assistant = await assistants.create({ model: "conf-short-wait" });
  const thread = await threads.create();
  const stream = threads.runs.stream(thread.id, { assistant_id: assistant.id });
  let run;
  for await (const event of stream)
    if (event.event === "thread.run.created") {
      run = event.data;
      break;
    }
  stream.abort();
  assert.equal((await threads.runs.poll(...inThread(run.id, thread.id))).status, "completed");
}

async function errors(client) {
  const stranger = client instanceof AzureOpenAI ? null : new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong" });
  if (stranger) await assert.rejects(stranger.models.list(), (error) => error.status === 401);
  await assert.rejects(
    client.beta.threads.retrieve("thread_none"),
    (error) => error.status === 404 && error.requestID?.startsWith("req_") !== false,
  );
  const long = await client.beta.assistants.create({ model: "conf-long" });
  const run = await client.beta.threads.createAndRunPoll({ assistant_id: long.id, max_completion_tokens: 256 });
  assert.deepEqual([run.status, run.incomplete_details.reason], ["incomplete", "max_completion_tokens"]);
}

const options = { maxRetries: 0, timeout: 20000 };
for (const client of [
  new OpenAI({ baseURL: `${url}/v1`, apiKey, ...options }),
  new AzureOpenAI({ endpoint: url, apiKey, apiVersion: "2024-05-01-preview", ...options }),
])
  for (const drive of [roundsByPolling, roundsByStreams, builtinTools, cancelAndLock, leaving, errors]) {
    await drive(client);
    console.log(client.constructor.name, drive.name);
  }
