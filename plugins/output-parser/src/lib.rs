//! Output parser: splits generated text into content, reasoning and tool calls as it arrives, and writes
//! the grammar that forces calls of the declared tools.
//!
//! The formats are those of the SDK's [`formats`](mortise_plugin_sdk::formats). Which one a model writes is told by its
//! chat template, else by its control tokens, else by its architecture, and the operator's settings decide
//! before all of them. Where nothing tells, the template is rendered, and what it writes shows the format ([`derive`]). The
//! grammar is made from the marks by which the format is read.
//!
//! The SDK's [`stream`](mortise_plugin_sdk::stream) reads, so neither the result nor the work depends on
//! how the text was cut, and what turns out not to be a call is handed back as content, exactly as
//! generated. Rules that the formats leave open:
//! * Reasoning counts only at the very start of an answer, or if the prompt opened it. Whitespace
//!   around it is dropped. A call within it is reasoning too, unless nothing closes the block: then the
//!   first whole call ends it.
//! * Whitespace between content and a call, and after the last call, is dropped.
//! * A call that names an undeclared tool or is not in the format is content, exactly as generated; so is one that
//!   the answer ends in. Mended are control characters inside strings and a comma before the end of a list
//!   or object. A call is passed on when its arguments are whole; where calls are forced, a grammar holds
//!   them to JSON, and they are passed on as they come.
//! * Where one answer may hold one call only, further ones are dropped.

mod calls;
pub mod constraint;
pub mod derive;
mod marks;
pub mod response;
mod schema;
pub mod style;
mod values;

use mortise_plugin_sdk::log::{Level, log};
use mortise_plugin_sdk::output_parser::{GrammarSource, Marks, OutputParser, Session, Setup};
use mortise_plugin_sdk::stream::Parsing;
use mortise_plugin_sdk::tools::Tools;
use mortise_plugin_sdk::{Fault, Model};

use crate::style::{Reason, Settings, Style};

mortise_plugin_sdk::export!(output_parser: DefaultParser, settings: "settings.schema.json");

/// The plugin. An instance serves one model.
#[derive(Debug)]
pub struct DefaultParser(Style);

impl OutputParser for DefaultParser {
    type Settings = Settings;

    fn prepare(settings: Settings, model: Model) -> Result<Self, Fault> {
        let template = mortise_plugin_sdk::response_template();
        Ok(Self(Style::of_files(&settings, model, template.as_deref())))
    }

    /// Asked once, and therefore the place to tell the operator of a format that is not known.
    fn keep_special_tokens(&self) -> bool {
        if self.0.is_unknown() {
            let model = self.0.model.name.as_str();
            let message = "the chat template shows tools and no known format of calls, so calls are read as `hermes`; \
                           name the format in the settings of the output parser, see `mortise parse --formats`";
            log(Level::Warn, message, &[("model", model)]);
        }
        if let Some(problem) = &self.0.refused {
            let message = "the response_template of the model's files is not followed";
            let fields = [("model", self.0.model.name.as_str()), ("problem", problem)];
            log(Level::Warn, message, &fields);
        }
        if self.0.reason == Reason::Derived {
            let message = "no known format of calls is told by the model's files; it was derived from what the chat \
                           template writes, and reads that back";
            let marks = self.0.format.spec().opens.join(" ");
            let fields = [("model", self.0.model.name.as_str()), ("marks", &marks)];
            log(Level::Info, message, &fields);
        }
        self.0.keep_special_tokens()
    }

    fn reasoning(&self) -> Option<Marks> {
        self.0.reasoning()
    }

    fn constraint(
        &self,
        setup: &Setup,
        wanted: Option<GrammarSource>,
    ) -> Result<Option<GrammarSource>, Fault> {
        constraint::constraint(&self.0, setup, wanted)
    }

    fn open(&'static self, setup: Setup) -> Result<Option<Box<dyn Session>>, Fault> {
        if let Some(reader) = self.0.response {
            return Ok(Some(Box::new(reader.open(&setup)?)));
        }
        let parsing = open(&self.0, &setup)?;
        Ok(parsing.map(|parsing| Box::new(parsing) as Box<dyn Session>))
    }
}

/// Begin to read an answer; none if nothing in it could need parsing.
///
/// # Errors
/// [`Fault::Invalid`] for tools that make no sense.
pub fn open(style: &Style, setup: &Setup) -> Result<Option<Parsing>, Fault> {
    let tools = Tools::allowed(setup)?;
    let reasons = style.reasons || setup.opens_reasoning;
    let (format, thought) = (style.format, style.thought);
    let calls = !tools.is_empty() || format.spec().framed;
    if !calls && !reasons {
        return Ok(None);
    }
    let parsing = Parsing::new(tools, setup.opens_reasoning, async move |text| {
        if reasons {
            format.read_reasoning(text, thought).await;
        }
        if calls {
            format.read_calls(text).await;
        }
    });
    Ok(Some(parsing))
}
