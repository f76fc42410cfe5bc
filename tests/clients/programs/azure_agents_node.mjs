// Azure's agents package for Node (@azure/ai-agents 1.x) in the form /api/projects/NAME over TLS.
// NODE_CLIENT_FOLDER names a folder whose node_modules holds it; NODE_EXTRA_CA_CERTS the authority's file.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { Readable } from "node:stream";

const require = createRequire(process.env.NODE_CLIENT_FOLDER + "/index.js");
const { AgentsClient, ToolSet, ToolUtility } = require("@azure/ai-agents");
const { SERVER_URL: url, SERVER_KEY: token } = process.env;
const endpoint = `${url}/api/projects/demo`;
const credential = (key) => ({ getToken: async () => ({ token: key, expiresOnTimestamp: Date.now() + 3_600_000 }) });
const client = new AgentsClient(endpoint, credential(token), { retryOptions: { maxRetries: 0 } });
const { definition } = ToolUtility.createFunctionTool({
  name: "get_weather",
  description: "Weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } },
});
const outputs = (run) =>
  run.requiredAction.submitToolOutputs.toolCalls.map((call) => ({ toolCallId: call.id, output: "12 degrees" }));
const texts = async (threadId) => {
  const found = [];
  for await (const message of client.messages.list(threadId)) found.push(message.content[0].text);
  return found;
};
const settled = async (run) => {
  while (["queued", "in_progress", "cancelling"].includes(run.status)) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    run = await client.runs.get(run.threadId, run.id);
  }
  return run;
};

async function rounds() {
  const agent = await client.createAgent("conf-weather", { name: "a", instructions: "Be brief.", tools: [definition] });
  const thread = await client.threads.create();
  await client.messages.create(thread.id, "user", "Weather?");
  let run = await settled(await client.runs.create(thread.id, agent.id));
  const counts = [];
  while (run.status === "requires_action") {
    counts.push(outputs(run).length);
    run = await settled(await client.runs.submitToolOutputs(thread.id, run.id, outputs(run)));
  }
  assert.deepEqual([run.status, ...counts], ["completed", 2, 1]);
  assert.equal((await texts(thread.id))[0].value, "Oslo, Bergen and Tromsø are fine.");
  const again = await client.runs.createAndPoll(thread.id, agent.id, {
    model: "plain",
    pollingOptions: { intervalInMs: 20 },
  });
  assert.equal(again.status, "completed");
  const steps = [];
  for await (const step of client.runSteps.list(thread.id, run.id)) steps.push(step.type);
  assert.deepEqual(steps, ["message_creation", "tool_calls", "tool_calls"]);
  const threads = [];
  for await (const one of client.threads.list({ limit: 1 })) threads.push(one.id);
  assert.ok(threads.includes(thread.id));
  assert.equal((await client.updateAgent(agent.id, { name: "b" })).name, "b");
  await client.threads.delete(thread.id);
  await client.deleteAgent(agent.id);
}

async function streams() {
  const agent = await client.createAgent("conf-weather", { tools: [definition] });
  const thread = await client.threads.create({ messages: [{ role: "user", content: "Weather?" }] });
  const names = [];
  let text = "";
  const follow = async (response) => {
    let run;
    for await (const event of await response.stream()) {
      names.push(event.event);
      if (event.event === "thread.message.delta")
        for (const part of event.data.delta.content) text += part.text.value ?? "";
      if (event.event.startsWith("thread.run.") && event.data.requiredAction) run = event.data;
    }
    return run;
  };
  let run = await follow(client.runs.create(thread.id, agent.id));
  while (run) run = await follow(client.runs.submitToolOutputs(thread.id, run.id, outputs(run)));
  assert.equal(text, "Oslo, Bergen and Tromsø are fine.");
  assert.equal(names.filter((name) => name === "done").length, 3, names.join(" "));
}

async function builtinTools() {
  const content = () => Readable.from([Buffer.from("Wildfires of 2020: 58950")]);
  const file = await client.files.upload(content(), "assistants", { fileName: "fires.md" });
  const polled = await client.files
    .uploadAndPoll(content(), "assistants", { fileName: "more.md", pollingOptions: { intervalInMs: 20 } })
    .pollUntilDone();
  assert.equal(polled.status, "processed");
  const store = await client.vectorStores
    .createAndPoll({ fileIds: [file.id], name: "facts", pollingOptions: { intervalInMs: 20 } })
    .pollUntilDone();
  const batch = await client.vectorStoreFileBatches
    .createAndPoll(store.id, { fileIds: [polled.id], pollingOptions: { intervalInMs: 20 } })
    .pollUntilDone();
  assert.equal(batch.status, "completed");
  const tools = new ToolSet();
  tools.addFileSearchTool([store.id]);
  tools.addCodeInterpreterTool([file.id]);
  const agent = await client.createAgent("conf-search", {
    tools: tools.toolDefinitions,
    toolResources: tools.toolResources,
  });
  const run = await settled(await client.runs.createThreadAndRun(agent.id));
  assert.equal(run.status, "completed");
  const [answer] = await texts(run.threadId);
  assert.ok([file.id, polled.id].includes(answer.annotations[0].fileCitation.fileId));
  assert.ok((await client.files.list()).data.length >= 2);
  await client.vectorStores.delete(store.id);
  await client.files.delete(file.id);
}

async function refusals() {
  const agent = await client.createAgent("conf-slow");
  const thread = await client.threads.create();
  const run = await client.runs.create(thread.id, agent.id);
  await assert.rejects(client.messages.create(thread.id, "user", "x"), /while a run/);
  await client.runs.cancel(thread.id, run.id);
  assert.equal((await settled(run)).status, "cancelled");
  await assert.rejects(client.threads.get("thread_none"), (error) => error.statusCode === 404 || error.status === 404);
  const stranger = new AgentsClient(endpoint, credential("wrong"), { retryOptions: { maxRetries: 0 } });
  await assert.rejects(stranger.createAgent("plain"), /Incorrect API key/);
}

for (const drive of [rounds, streams, builtinTools, refusals]) {
  await drive();
  console.log(drive.name);
}
