//! Body of the request to an upstream: our settings in the fields that its family of servers has. What a
//! family cannot express is refused by name.

use mortise_models::conversation::ToolDeclaration;
use mortise_models::{
    ConversationRequest, MaxTokensField, OutputFormat, RenderedRequest, RequestedSampling, ToolUse,
    UpstreamApi, UpstreamConfig,
};
use serde_json::{Map, Value, json};

use crate::messages::messages;
use crate::unsupported::UnsupportedSetting;

/// The body as JSON.
pub(crate) fn request_body(
    request: &ConversationRequest,
    config: &UpstreamConfig,
) -> Result<Vec<u8>, UnsupportedSetting> {
    let mut body = Body {
        fields: Map::new(),
        api: config.api,
    };
    body.set("model", json!(config.model));
    let messages = messages(&request.conversation, config)?;
    body.set("messages", Value::Array(messages));
    body.set("stream", json!(true));
    body.set("stream_options", json!({"include_usage": true}));
    let limit = match config.max_tokens_field {
        MaxTokensField::MaxTokens => "max_tokens",
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
    };
    if request.max_tokens_given {
        body.set(limit, json!(request.max_tokens));
    }
    if !request.stop.is_empty() {
        body.set("stop", json!(request.stop));
    }
    if let Some(top) = request.logprobs {
        body.set("logprobs", json!(true));
        body.set("top_logprobs", json!(top));
    }
    body.sampling(&request.sampling)?;
    body.tools(request);
    if let Some(format) = &request.format {
        body.format(format)?;
    }
    body.arguments(request, config.thinking)?;
    if request.continue_final_message {
        body.continue_final_message()?;
    }
    // Maps of JSON have text keys: this never fails.
    serde_json::to_vec(&body.fields)
        .map_err(|error| UnsupportedSetting::new("messages", error.to_string()))
}

/// The body of a completion of tokens, as JSON.
pub(crate) fn completion_body(
    request: &RenderedRequest,
    config: &UpstreamConfig,
) -> Result<Vec<u8>, UnsupportedSetting> {
    let mut body = Body {
        fields: Map::new(),
        api: config.api,
    };
    body.set("model", json!(config.model));
    body.set("prompt", json!(request.prompt));
    body.set("stream", json!(true));
    body.set("stream_options", json!({"include_usage": true}));
    body.set("max_tokens", json!(request.max_tokens));
    if !request.stop.is_empty() {
        body.set("stop", json!(request.stop));
    }
    if request.keep_special && matches!(config.api, UpstreamApi::Vllm | UpstreamApi::Mortise) {
        body.set("skip_special_tokens", json!(false));
    }
    body.sampling(&request.sampling)?;
    match &request.format {
        // Its completions have fields of their own for constraints.
        Some(OutputFormat::JsonSchema(schema)) if config.api == UpstreamApi::LlamaServer => {
            body.set("json_schema", parsed(schema)?);
        }
        Some(OutputFormat::JsonObject) if config.api == UpstreamApi::LlamaServer => {
            body.set("json_schema", json!({"type": "object"}));
        }
        Some(_) if config.api == UpstreamApi::Openai => return Err(body.refused("response_format")),
        Some(format) => body.format(format)?,
        None => {}
    }
    // Maps of JSON have text keys: this never fails.
    serde_json::to_vec(&body.fields)
        .map_err(|error| UnsupportedSetting::new("prompt", error.to_string()))
}

fn parsed(schema: &str) -> Result<Value, UnsupportedSetting> {
    serde_json::from_str(schema).map_err(|error| {
        UnsupportedSetting::new("response_format", format!("holds no JSON schema: {error}"))
    })
}

struct Body {
    fields: Map<String, Value>,
    api: UpstreamApi,
}

impl Body {
    fn set(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    fn set_if_given<T: Into<Value>>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.set(name, value.into());
        }
    }

    fn refused(&self, field: &str) -> UnsupportedSetting {
        let why = format!(
            "cannot be passed on: the model's server has no such field (api = \"{}\")",
            self.api.name()
        );
        UnsupportedSetting::new(field, why)
    }

    fn sampling(&mut self, sampling: &RequestedSampling) -> Result<(), UnsupportedSetting> {
        self.set_if_given("temperature", sampling.temperature);
        self.set_if_given("top_p", sampling.top_p);
        self.set_if_given("frequency_penalty", sampling.frequency_penalty);
        self.set_if_given("presence_penalty", sampling.presence_penalty);
        let seed = sampling.seed.map(|seed| match self.api {
            // It has 32 bits there, and the last of them asks for chance.
            UpstreamApi::LlamaServer => seed.rem_euclid(i64::from(u32::MAX)),
            _ => seed,
        });
        self.set_if_given("seed", seed);
        let RequestedSampling {
            top_k,
            min_p,
            repetition_penalty,
            ..
        } = *sampling;
        if self.api == UpstreamApi::Openai {
            // Values that change nothing need no field.
            if top_k.is_some_and(|k| k != 0) {
                return Err(self.refused("top_k"));
            }
            if min_p.is_some_and(|p| p != 0.0) {
                return Err(self.refused("min_p"));
            }
            if repetition_penalty.is_some_and(|penalty| penalty != 1.0) {
                return Err(self.refused("repetition_penalty"));
            }
            return Ok(());
        }
        let top_k = top_k.map(|k| match (self.api, k) {
            // Off, as every version of vLLM has it.
            (UpstreamApi::Vllm, 0) => -1,
            (_, k) => i64::from(k),
        });
        self.set_if_given("top_k", top_k);
        self.set_if_given("min_p", min_p);
        let name = match self.api {
            UpstreamApi::LlamaServer => "repeat_penalty",
            _ => "repetition_penalty",
        };
        self.set_if_given(name, repetition_penalty);
        Ok(())
    }

    fn tools(&mut self, request: &ConversationRequest) {
        if request.tools.is_empty() {
            return;
        }
        let tools: Vec<Value> = request.tools.iter().map(declaration).collect();
        self.set("tools", Value::Array(tools));
        let choice = match &request.tool_use {
            ToolUse::None => json!("none"),
            ToolUse::Auto => json!("auto"),
            ToolUse::Required => json!("required"),
            ToolUse::Named(name) => json!({"type": "function", "function": {"name": name}}),
        };
        self.set("tool_choice", choice);
        // True is the default everywhere but there, and some servers do not know the field.
        if !request.parallel_tool_calls || self.api == UpstreamApi::LlamaServer {
            self.set("parallel_tool_calls", json!(request.parallel_tool_calls));
        }
    }

    fn format(&mut self, format: &OutputFormat) -> Result<(), UnsupportedSetting> {
        let structured = matches!(self.api, UpstreamApi::Vllm | UpstreamApi::Mortise);
        match format {
            OutputFormat::JsonObject => {
                self.set("response_format", json!({"type": "json_object"}));
            }
            OutputFormat::JsonSchema(schema) => {
                let schema = json!({"name": "answer", "schema": parsed(schema)?, "strict": true});
                let format = json!({"type": "json_schema", "json_schema": schema});
                self.set("response_format", format);
            }
            OutputFormat::Regex(regex) if structured => {
                self.set("structured_outputs", json!({"regex": regex}));
            }
            OutputFormat::Lark(grammar) if structured => {
                self.set("structured_outputs", json!({"grammar": grammar}));
            }
            OutputFormat::Regex(_) => return Err(self.refused("structured_outputs.regex")),
            OutputFormat::Gbnf(grammar) if structured => {
                self.set("structured_outputs", json!({"grammar": grammar}));
            }
            OutputFormat::Gbnf(grammar) if self.api == UpstreamApi::LlamaServer => {
                self.set("grammar", json!(grammar));
            }
            OutputFormat::StructuralTag(tag) if structured => {
                let mut tag = tag.clone();
                tag.insert("type".to_owned(), json!("structural_tag"));
                self.set("response_format", Value::Object(tag));
            }
            OutputFormat::Lark(_) | OutputFormat::Gbnf(_) => {
                return Err(self.refused("structured_outputs.grammar"));
            }
            OutputFormat::StructuralTag(_) => {
                return Err(self.refused("structured_outputs.structural_tag"));
            }
        }
        Ok(())
    }

    /// Arguments of the chat template, where the upstream lets requests give any. `thinking` is what the
    /// operator says where the request does not.
    fn arguments(
        &mut self,
        request: &ConversationRequest,
        thinking: Option<bool>,
    ) -> Result<(), UnsupportedSetting> {
        let mut arguments = request.arguments.members().clone();
        let effort = arguments.get("reasoning_effort").cloned();
        if self.api != UpstreamApi::Openai {
            if let Some(thinking) = thinking
                && effort.is_none()
            {
                let argument = arguments.entry("enable_thinking");
                argument.or_insert(json!(thinking));
            }
            // vLLM's own renderers read it outside of the arguments.
            if let Some(effort) = effort.filter(|_| self.api == UpstreamApi::Vllm) {
                self.set("reasoning_effort", effort);
            }
            if !arguments.is_empty() {
                self.set("chat_template_kwargs", Value::Object(arguments));
            }
            return Ok(());
        }
        for (name, value) in arguments {
            match name.as_str() {
                "reasoning_effort" | "verbosity" => self.set(&name, value),
                // `reasoning_effort` says it already.
                "enable_thinking" if effort == Some(json!("none")) => {}
                _ => return Err(self.refused(&format!("chat_template_kwargs.{name}"))),
            }
        }
        if let Some(thinking) = thinking
            && effort.is_none()
        {
            let kind = if thinking { "enabled" } else { "disabled" };
            self.set("thinking", json!({"type": kind}));
        }
        Ok(())
    }

    fn continue_final_message(&mut self) -> Result<(), UnsupportedSetting> {
        match self.api {
            UpstreamApi::Vllm | UpstreamApi::Mortise => {
                self.set("continue_final_message", json!(true));
                self.set("add_generation_prompt", json!(false));
                Ok(())
            }
            // It continues the last message if that is the assistant's.
            UpstreamApi::LlamaServer => Ok(()),
            UpstreamApi::Openai => Err(self.refused("continue_final_message")),
        }
    }
}

fn declaration(tool: &ToolDeclaration) -> Value {
    let mut function = Map::new();
    function.insert("name".to_owned(), json!(tool.name.as_str()));
    if let Some(description) = &tool.description {
        function.insert("description".to_owned(), json!(description));
    }
    let parameters = tool
        .parameters
        .as_ref()
        .map(|object| object.members().clone());
    let any = || json!({"type": "object", "properties": {}});
    let parameters = parameters.map_or_else(any, Value::Object);
    function.insert("parameters".to_owned(), parameters);
    if let Some(strict) = tool.strict {
        function.insert("strict".to_owned(), json!(strict));
    }
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests;
