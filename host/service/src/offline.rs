//! Parts of a request's life for the command line: each part by itself, through the same components, without inference.

use std::sync::Arc;

use mortise_plugin::{
    Finish, GrammarSource, MatchStatus, ParserEvent, ParserSetup, PluginError, Segment,
    TemplateInput,
};

use crate::description::for_tokenizer;
use crate::plugins::{CompileGrammar, ParseOutput, RenderChat, RequestId};
use mortise_tokenizer::{Detokenizer, Tokenizer, TokenizerError};

/// Reason for which an offline part failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OfflineError {
    /// A plugin failed.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The text could not be encoded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// A prompt as the model would see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedText {
    /// All segments as one text.
    pub text: String,
    /// Pieces of the prompt.
    pub segments: Vec<Segment>,
    /// Token ids.
    pub ids: Vec<u32>,
    /// Further stop strings.
    pub stop: Vec<String>,
    /// The prompt ends inside a reasoning block.
    pub opens_reasoning: bool,
}

/// Render and encode one conversation.
pub async fn render_template(
    template: &dyn RenderChat,
    tokenizer: &Tokenizer,
    request: &RequestId,
    input: TemplateInput,
) -> Result<RenderedText, OfflineError> {
    let rendered = template.render(request, input).await?;
    let ids = tokenizer.encode_segments(&for_tokenizer(&rendered.segments))?;
    let text = rendered
        .segments
        .iter()
        .map(|(Segment::Special(text) | Segment::Plain(text))| text.as_str())
        .collect();
    Ok(RenderedText {
        text,
        segments: rendered.segments,
        ids,
        stop: rendered.stop,
        opens_reasoning: rendered.opens_reasoning,
    })
}

/// Cuts of a text before it goes to a parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParserChunking {
    /// One piece.
    Whole,
    /// Pieces of so many characters, at least one.
    Every(usize),
    /// Two pieces, the first of so many characters.
    At(usize),
    /// Pieces of one token of the model each.
    Tokens,
}

/// Parse a text by an output parser, and join neighbouring pieces of the same kind.
pub async fn parse_text(
    parser: &dyn ParseOutput,
    tokenizer: &Tokenizer,
    request: &RequestId,
    setup: &ParserSetup,
    text: &str,
    chunking: ParserChunking,
) -> Result<Vec<ParserEvent>, OfflineError> {
    let Some(mut session) = parser.open(request, setup).await? else {
        return Ok(join([ParserEvent::Content(text.to_owned())]));
    };
    let mut events = Vec::new();
    for (piece, ids) in pieces(parser, tokenizer, text, chunking)? {
        events.extend(session.feed(&piece, &ids).await?);
    }
    events.extend(session.close(Finish::Stop).await?);
    Ok(join(events))
}

fn pieces(
    parser: &dyn ParseOutput,
    tokenizer: &Tokenizer,
    text: &str,
    chunking: ParserChunking,
) -> Result<Vec<(String, Vec<u32>)>, OfflineError> {
    let every = match chunking {
        ParserChunking::Whole => usize::MAX,
        ParserChunking::Every(count) => count.max(1),
        ParserChunking::At(count) => {
            let at = text.char_indices().nth(count);
            let (head, tail) = text.split_at(at.map_or(text.len(), |(at, _)| at));
            let pieces = [head, tail].map(|piece| (piece.to_owned(), Vec::new()));
            return Ok(pieces.into());
        }
        ParserChunking::Tokens => {
            let table = Arc::clone(tokenizer.table());
            let keep = parser.traits().keep_special_tokens;
            let mut detokenizer = Detokenizer::new(table, keep, true);
            let mut pieces = Vec::new();
            for id in tokenizer.encode_special(text)? {
                let mut piece = String::new();
                detokenizer.push(id, &mut piece);
                pieces.push((piece, vec![id]));
            }
            let mut rest = String::new();
            detokenizer.finish(&mut rest);
            pieces.push((rest, Vec::new()));
            return Ok(pieces);
        }
    };
    let characters: Vec<char> = text.chars().collect();
    let pieces = characters.chunks(every.min(characters.len()).max(1));
    Ok(pieces
        .map(|piece| (piece.iter().collect(), Vec::new()))
        .collect())
}

/// Join neighbours of the same kind, so that answers can be compared however they were cut.
fn join(events: impl IntoIterator<Item = ParserEvent>) -> Vec<ParserEvent> {
    let mut joined: Vec<ParserEvent> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (_, ParserEvent::Content(text) | ParserEvent::Reasoning(text)) if text.is_empty() => {}
            (Some(ParserEvent::Content(last)), ParserEvent::Content(text))
            | (Some(ParserEvent::Reasoning(last)), ParserEvent::Reasoning(text)) => {
                last.push_str(&text);
            }
            (
                Some(ParserEvent::CallArguments {
                    index: last,
                    delta: text,
                }),
                ParserEvent::CallArguments { index, delta },
            ) if *last == index => text.push_str(&delta),
            (_, event) => joined.push(event),
        }
    }
    joined
}

/// Whether a text follows a grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrammarVerdict {
    /// The text follows the grammar and is complete.
    pub accepted: bool,
    /// Tokens of the text.
    pub tokens: usize,
    /// Tokens that the grammar allowed, counted from the first token of the text.
    pub allowed_tokens: usize,
    /// State of the matcher after the last allowed token.
    pub status: MatchStatus,
}

/// Compile a grammar and walk a text through it token by token, as generation would.
pub async fn check_grammar(
    grammar: &dyn CompileGrammar,
    tokenizer: &Tokenizer,
    mask_tokens: usize,
    request: &RequestId,
    source: &GrammarSource,
    text: &str,
) -> Result<GrammarVerdict, OfflineError> {
    let mut matcher = grammar.compile(request, source).await?;
    let ids = tokenizer.encode_plain(text)?;
    let mut mask = vec![0; mask_tokens.div_ceil(32)];
    let mut status = matcher.mask(&mut mask).await?;
    let mut allowed = 0;
    for &id in &ids {
        let word = mask.get(id as usize / 32).copied().unwrap_or(0);
        if status == MatchStatus::Finished || word >> (id % 32) & 1 == 0 {
            break;
        }
        status = matcher.advance(&[id], &mut mask).await?.status;
        allowed += 1;
    }
    Ok(GrammarVerdict {
        accepted: allowed == ids.len() && status != MatchStatus::Active,
        tokens: ids.len(),
        allowed_tokens: allowed,
        status,
    })
}
