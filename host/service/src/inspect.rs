//! Parts of a request's life by themselves: prompts rendered and encoded, token ids decoded, generated
//! text parsed. Nothing is generated; policies are asked as for any request.

use std::sync::Arc;
use std::time::Duration;

use mortise_models::conversation::template_json;
use mortise_models::lifecycle::ModelEvent;
use mortise_models::{FinishReason, Generator};
use mortise_plugin::{NameAndVersion, ParserEvent, ParserSetup, Segment, ToolChoice};
use mortise_tokenizer::{EncodeLimits, Tokenizer, TokenizerError};
use tokio::sync::broadcast::Receiver;

use crate::admission::{Admission, ApiCall};
use crate::call_id::new_call_id;
use crate::check::Request;
use crate::encoding;
use crate::error::ServiceError;
use crate::limits::{MAX_LISTED_TOKENS, MAX_PARSED_BYTES};
use crate::model::LoadedModel;
use crate::observer::Outcome;
use crate::offline::{OfflineError, ParserChunking, parse_text};
use crate::prepare::{self, PromptModel, not_written};
use crate::refusal::{invalid, refuse};
use crate::service::{Service, UsedModel, account};
use mortise_models::conversation::ToolDeclarations;

/// Text as a model's tokens.
pub struct EncodedPrompt {
    /// Public name of the model.
    pub model: String,
    /// Token ids.
    pub ids: Vec<u32>,
    /// The rendered prompt, where a conversation was given.
    pub text: Option<String>,
    /// Further stop strings of the chat template.
    pub stop: Vec<String>,
    /// Template that rendered a conversation.
    pub template: Option<TemplateUse>,
    /// Tokens of the model's context.
    pub context_length: usize,
    /// The policy is told when this is dropped.
    pub admission: Admission,
    tokenizer: Arc<Tokenizer>,
}

/// A chat template at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateUse {
    /// Component, where it is one.
    pub component: Option<NameAndVersion>,
    /// Time that it took.
    pub time: Duration,
}

impl EncodedPrompt {
    /// Bytes of each token as text, as far as they are UTF-8.
    pub fn token_texts(&self) -> Vec<String> {
        let table = self.tokenizer.table();
        let texts = self.ids.iter();
        texts
            .map(|id| String::from_utf8_lossy(table.bytes(*id)).into_owned())
            .collect()
    }
}

/// Tokens as a text.
pub struct DecodedText {
    /// Public name of the model.
    pub model: String,
    /// Text, control tokens included.
    pub text: String,
    /// The policy is told when this is dropped.
    pub admission: Admission,
}

/// Generated text to parse.
#[derive(Debug, Clone, Default)]
pub struct ParseRequest {
    /// The model's name.
    pub model: String,
    /// Text as the model generated it.
    pub text: String,
    /// Tools that the model was shown.
    pub tools: ToolDeclarations,
    /// The prompt ended inside a reasoning block.
    pub opens_reasoning: bool,
}

/// Generated text as the model's parser reads it.
pub struct ParsedText {
    /// Public name of the model.
    pub model: String,
    /// Content.
    pub content: String,
    /// Reasoning.
    pub reasoning: String,
    /// Calls: id, name, arguments.
    pub calls: Vec<(String, String, String)>,
    /// The policy is told when this is dropped.
    pub admission: Admission,
}

impl Service {
    /// Render and encode the prompt of a request.
    ///
    /// # Errors
    /// When the request is refused, or its prompt cannot be made.
    pub async fn encode_prompt(
        &self,
        call: &ApiCall,
        request: &Request,
    ) -> Result<EncodedPrompt, ServiceError> {
        let name = request.fields().model.clone();
        let result = self.try_encode_prompt(call, request).await;
        result.inspect_err(|error| self.refused(&self.serving(), &name, error))
    }

    async fn try_encode_prompt(
        &self,
        call: &ApiCall,
        request: &Request,
    ) -> Result<EncodedPrompt, ServiceError> {
        let (mut admission, used) = self.admit(call, &request.fields().model).await?;
        let name = used.loaded.model.name.clone();
        let arguments = used.loaded.generator()?.template_arguments();
        let (tokenizer, context) = tokenizer_of(&used.loaded)?;
        let model = PromptModel {
            name: &name,
            tokenizer: &tokenizer,
            arguments: &arguments,
            context,
        };
        let key = admission.routing_key(&name);
        let plugins = used.loaded.plugins.select(&key);
        let tools = used.tools(request.fields(), &key)?;
        let request = &request.clone().with_server_tools(tools.declarations())?;
        let tenant = account(&admission.allowance().principal);
        let id = &admission.request_id().clone();
        let prompt = prepare::prompt(model, &plugins, &tenant, id, request).await?;
        admission.spent().outcome = Outcome::Finished(FinishReason::Stop);
        let text = prompt.rendered.as_ref().map(|rendered| {
            let segments = rendered.segments.iter();
            let texts = segments.map(|(Segment::Special(text) | Segment::Plain(text))| &**text);
            texts.collect()
        });
        let template = prompt.rendered.as_ref().map(|rendered| TemplateUse {
            component: rendered.by.clone(),
            time: prompt.render_time,
        });
        Ok(EncodedPrompt {
            model: name.clone(),
            ids: prompt.ids,
            text,
            template,
            stop: prompt
                .rendered
                .map(|rendered| rendered.stop)
                .unwrap_or_default(),
            context_length: context,
            admission,
            tokenizer,
        })
    }

    /// Wait until a model is loaded, where requests may load it. Returns its public name.
    ///
    /// # Errors
    /// When the request is refused, or the model cannot be loaded.
    pub async fn load(
        &self,
        call: &ApiCall,
        model: &str,
    ) -> Result<(String, Admission), ServiceError> {
        let (mut admission, used) = self.admit(call, model).await?;
        admission.spent().outcome = Outcome::Finished(FinishReason::Stop);
        Ok((used.loaded.model.name.clone(), admission))
    }

    /// Keep a model loaded for so long after its last request, whatever is configured for it, until a request
    /// says otherwise or it is unloaded.
    pub fn keep_loaded(&self, model: &str, time: Duration) {
        self.config.holder.keep(model, time);
    }

    /// Time for which a loaded model stays if no further request comes; `None` if nothing ends it.
    pub fn time_left(&self, model: &str) -> Option<Duration> {
        self.config.holder.time_left(model)
    }

    /// The model of a request that only says how long it stays loaded: it is not loaded for that. Returns its public
    /// name.
    ///
    /// # Errors
    /// When the request is refused, or there is no such model.
    pub async fn named(
        &self,
        call: &ApiCall,
        model: &str,
    ) -> Result<(String, Admission), ServiceError> {
        let admission = self.authorize(call, Some(model)).await?;
        let model = self.model_for(call, model).await?;
        Ok((model.listing.name.clone(), admission))
    }

    /// Events of models from now on, if callers are to hear of those that they wait for.
    pub fn swap_notices(&self) -> Option<Receiver<ModelEvent>> {
        self.config.holder.swap_notices()
    }

    /// Encode a text, in which control tokens are not recognised. `around` adds the tokens that the
    /// model was trained with around a text.
    ///
    /// # Errors
    /// When the request is refused, or the model's tokens are not known here.
    pub async fn encode_text(
        &self,
        call: &ApiCall,
        model: &str,
        text: String,
        around: bool,
    ) -> Result<EncodedPrompt, ServiceError> {
        let (mut admission, used) = self.admit(call, model).await?;
        let name = used.loaded.model.name.clone();
        let (tokenizer, context) = tokenizer_of(&used.loaded)?;
        let tenant = account(&admission.allowance().principal);
        let encoder = Arc::clone(&tokenizer);
        let encoded = encoding::encode(
            &tenant,
            text.len(),
            usize::MAX,
            move |limits| match around {
                true => encoder.encode_text_within(&text, limits),
                false => encode_plain(&encoder, &text, limits),
            },
        );
        let ids = encoded.await?;
        let ids = ids.map_err(|error| match error {
            TokenizerError::TooLong { .. } => {
                let message = format!("the text has more than {MAX_LISTED_TOKENS} tokens");
                invalid("prompt", message)
            }
            error => invalid("prompt", error.to_string()),
        })?;
        admission.spent().outcome = Outcome::Finished(FinishReason::Stop);
        Ok(EncodedPrompt {
            model: name,
            ids,
            text: None,
            template: None,
            stop: Vec::new(),
            context_length: context,
            admission,
            tokenizer,
        })
    }

    /// Decode token ids, control tokens included.
    ///
    /// # Errors
    /// When the request is refused, or an id is none of the model's.
    pub async fn decode(
        &self,
        call: &ApiCall,
        model: &str,
        ids: &[u32],
    ) -> Result<DecodedText, ServiceError> {
        let (mut admission, used) = self.admit(call, model).await?;
        let (tokenizer, _) = tokenizer_of(&used.loaded)?;
        let unknown = ids.iter().position(|id| !tokenizer.table().contains(*id));
        if let Some(at) = unknown {
            let id = ids[at];
            let message = format!("{id} is no token of this model");
            return Err(invalid(format!("tokens[{at}]"), message));
        }
        admission.spent().outcome = Outcome::Finished(FinishReason::Stop);
        Ok(DecodedText {
            model: used.loaded.model.name.clone(),
            text: tokenizer.decode(ids, true),
            admission,
        })
    }

    /// Parse generated text with the model's output parser.
    ///
    /// # Errors
    /// When the request is refused, or the parser fails.
    pub async fn parse(
        &self,
        call: &ApiCall,
        request: ParseRequest,
    ) -> Result<ParsedText, ServiceError> {
        if request.text.len() > MAX_PARSED_BYTES {
            let size = request.text.len();
            return Err(invalid(
                "text",
                format!("the text has {size} bytes; at most {MAX_PARSED_BYTES} are parsed"),
            ));
        }
        let (mut admission, used) = self.admit(call, &request.model).await?;
        let events = self.parse_events(call, &request, &used, &admission).await?;
        admission.spent().outcome = Outcome::Finished(FinishReason::Stop);
        let mut parsed = ParsedText {
            model: used.loaded.model.name.clone(),
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            admission,
        };
        for event in events {
            match event {
                ParserEvent::Content(text) => parsed.content.push_str(&text),
                ParserEvent::Reasoning(text) => parsed.reasoning.push_str(&text),
                ParserEvent::CallBegin { id, name, .. } => {
                    let id = id.unwrap_or_else(new_call_id);
                    parsed.calls.push((id, name, String::new()));
                }
                ParserEvent::CallArguments { index, delta } => {
                    if let Some((_, _, arguments)) = parsed.calls.get_mut(index as usize) {
                        arguments.push_str(&delta);
                    }
                }
                ParserEvent::CallEnd { .. } => {}
            }
        }
        Ok(parsed)
    }

    async fn parse_events(
        &self,
        call: &ApiCall,
        request: &ParseRequest,
        used: &UsedModel,
        admission: &Admission,
    ) -> Result<Vec<ParserEvent>, ServiceError> {
        let name = &used.loaded.model.name;
        let (tokenizer, _) = tokenizer_of(&used.loaded)?;
        let plugins = used.loaded.plugins.select(&admission.routing_key(name));
        let Some(parser) = &plugins.parser else {
            let message = format!("the model `{name}` has no output parser");
            return Err(refuse("model", "no_output_parser", message));
        };
        let declared = request.tools.declarations();
        let setup = ParserSetup {
            tools: template_json::tools(declared.iter()).map_err(not_written)?,
            tool_choice: match declared.is_empty() {
                true => ToolChoice::None,
                false => ToolChoice::Auto,
            },
            parallel: true,
            opens_reasoning: request.opens_reasoning,
        };
        let (id, text) = (&call.request_id, &request.text);
        let parsed = parse_text(
            &**parser,
            &tokenizer,
            id,
            &setup,
            text,
            ParserChunking::Tokens,
        );
        parsed.await.map_err(|error| match error {
            OfflineError::Plugin(error) => error.into(),
            OfflineError::Tokenizer(error) => invalid("text", error.to_string()),
        })
    }
}

fn elsewhere(name: &str) -> ServiceError {
    let message = format!("the model `{name}` runs elsewhere and its tokens are not known here");
    invalid("model", message)
}

/// The tokenizer of a model, and the length of its context.
fn tokenizer_of(loaded: &LoadedModel) -> Result<(Arc<Tokenizer>, usize), ServiceError> {
    match (&loaded.model.generator, loaded.model.text_embedder()) {
        (Some(Generator::Tokens(generator)), _) => {
            let context = generator.runtime.context_length();
            Ok((Arc::clone(&generator.tokenizer), context))
        }
        (Some(Generator::Rendered(generator)), _) => {
            let context = generator.runtime.context_length();
            let tokenizer = Arc::clone(&generator.tokenizer);
            Ok((tokenizer, context.unwrap_or(usize::MAX)))
        }
        (_, Some(embedder)) => {
            let context = embedder.runtime.context_length();
            Ok((Arc::clone(&embedder.tokenizer), context))
        }
        _ => match &loaded.model.reranker {
            Some(reranker) => {
                let context = reranker.runtime.context_length();
                Ok((Arc::clone(&reranker.tokenizer), context))
            }
            None => Err(elsewhere(&loaded.model.name)),
        },
    }
}

fn encode_plain(
    tokenizer: &Tokenizer,
    text: &str,
    limits: EncodeLimits<'_>,
) -> Result<Vec<u32>, TokenizerError> {
    let plain = mortise_tokenizer::TextSegment::Plain(text);
    tokenizer.encode_segments_within(&[plain], limits)
}
