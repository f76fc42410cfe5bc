// LangChain for Node (langchain 0.3): its OpenAIAssistantRunnable, by hand and in an executor.
// NODE_CLIENT_FOLDER names a folder whose node_modules holds langchain, @langchain/core and zod.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(process.env.NODE_CLIENT_FOLDER + "/index.js");
const { OpenAIAssistantRunnable } = require("langchain/experimental/openai_assistant");
const { AgentExecutor } = require("langchain/agents");
const { StructuredTool } = require("@langchain/core/tools");
const { z } = require("zod");
const { SERVER_URL: url, SERVER_KEY: apiKey } = process.env;

const cities = [];
class GetWeather extends StructuredTool {
  name = "get_weather";
  description = "Weather of a city.";
  schema = z.object({ city: z.string() });
  async _call({ city }) {
    cities.push(city);
    return "12 degrees";
  }
}
const tools = [new GetWeather()];
const clientOptions = { baseURL: `${url}/v1`, apiKey, maxRetries: 0 };
const assistant = await OpenAIAssistantRunnable.createAssistant({
  model: "conf-weather",
  name: "a",
  instructions: "Be brief.",
  tools,
  asAgent: true,
  pollIntervalMs: 20,
  clientOptions,
});
assistant.pollIntervalMs = 20;
const executor = AgentExecutor.fromAgentAndTools({ agent: assistant, tools });
const answer = await executor.invoke({ content: "Weather?" });
assert.equal(answer.output, "Oslo, Bergen and Tromsø are fine.");
assert.deepEqual(cities, ["Oslo", "Bergen", "Tromsø"]);
const plain = new OpenAIAssistantRunnable({ assistantId: assistant.assistantId, clientOptions });
plain.pollIntervalMs = 20;
const [message] = await plain.invoke({ content: "hi", model: "plain" });
assert.equal(message.content[0].text.value, "Hello there, friend.");
assert.equal((await plain.modifyAssistant({ model: "conf-plain", name: "b" })).name, "b");
assert.ok((await plain.deleteAssistant()).deleted);
