//! A guardrail: it refuses what asks for a word of a list, and ends or mends answers that say one:
//! `{"words": ["swordfish"], "replace_with": "***"}`.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::guardrail::{
    Context, Finish, Guardrail, Part, Session, Traits, Verdict, text_of,
};
use mortise_plugin_sdk::serde_json::Value;
use serde::Deserialize;

mortise_plugin_sdk::export!(guardrail: Words, settings: "settings.schema.json");

/// The settings, which are also the whole plugin.
#[derive(Deserialize)]
struct Words {
    #[serde(default = "default_words")]
    words: Vec<String>,
    replace_with: Option<String>,
}

fn default_words() -> Vec<String> {
    vec!["swordfish".to_owned()]
}

impl Words {
    /// The first word in the text: where it begins, and where it ends.
    fn find(&self, text: &str) -> Option<(usize, usize)> {
        text.char_indices().find_map(|(start, _)| {
            let lengths = self.words.iter().map(|word| common(&text[start..], word));
            let (length, _) = lengths.into_iter().find(|(_, whole)| *whole == Whole::Word)?;
            Some((start, start + length))
        })
    }

    /// True if the text ends in the middle of a word.
    fn may_go_on(&self, text: &str) -> bool {
        text.char_indices().any(|(start, _)| {
            let mut words = self.words.iter();
            words.any(|word| common(&text[start..], word).1 == Whole::Text)
        })
    }
}

/// Side that is used up first where a text and a word agree.
#[derive(PartialEq)]
enum Whole {
    Word,
    Text,
    Neither,
}

/// Bytes of the text that agree with the word, in any case.
fn common(text: &str, word: &str) -> (usize, Whole) {
    let mut letters = text.chars();
    for wanted in word.chars() {
        let before = letters.as_str();
        match letters.next() {
            None => return (text.len(), Whole::Text),
            Some(letter) if letter.to_lowercase().eq(wanted.to_lowercase()) => {}
            Some(_) => return (text.len() - before.len(), Whole::Neither),
        }
    }
    (text.len() - letters.as_str().len(), Whole::Word)
}

impl Guardrail for Words {
    type Settings = Self;

    fn prepare(settings: Self) -> Result<Self, Fault> {
        Ok(settings)
    }

    fn traits(&self) -> Traits {
        Traits {
            input: true,
            ..Traits::content()
        }
    }

    fn check_input(&self, _: &Context, messages: &Value) -> Result<Verdict, Fault> {
        Ok(match self.find(&text_of(messages)) {
            Some(_) => Verdict::refuse("word", "the conversation has a word that may not be used"),
            None => Verdict::Pass,
        })
    }

    fn open(&'static self, context: Context) -> Result<Option<Box<dyn Session>>, Fault> {
        // Only what waits for the verdict can be mended.
        let replace_with = self.replace_with.as_deref().filter(|_| context.holds);
        Ok(Some(Box::new(Reader {
            words: self,
            replace_with,
            text: String::new(),
        })))
    }
}

/// One answer being read.
struct Reader {
    words: &'static Words,
    replace_with: Option<&'static str>,
    /// Text since all of it went out.
    text: String,
}

impl Reader {
    /// The verdict on the text, of which the first `out` bytes went out.
    fn verdict(&self, out: usize) -> Verdict {
        let Some((start, _)) = self.words.find(&self.text) else {
            return Verdict::Pass;
        };
        match (self.replace_with, self.text.get(out..)) {
            (Some(with), Some(held)) if start >= out => Verdict::Replace(self.mended(held, with)),
            _ => Verdict::refuse("word", "the answer has a word that may not be used"),
        }
    }

    fn mended(&self, text: &str, with: &str) -> String {
        let (mut mended, mut rest) = (String::new(), text);
        while let Some((start, end)) = self.words.find(rest) {
            mended.push_str(&rest[..start]);
            mended.push_str(with);
            rest = &rest[end..];
        }
        mended + rest
    }
}

impl Session for Reader {
    fn feed(&mut self, _: &Part, text: &str, held: usize) -> Result<Verdict, Fault> {
        let out = self.text.len().saturating_sub(held);
        self.text.push_str(text);
        let verdict = self.verdict(out);
        // The end may belong to another word; once it does not, the text is mended as a whole.
        let refused = matches!(verdict, Verdict::Refuse(_));
        if !refused && self.words.may_go_on(&self.text) {
            return Ok(Verdict::Undecided);
        }
        self.text.clear();
        Ok(verdict)
    }

    fn close(&mut self, _: Finish, held: usize) -> Result<Verdict, Fault> {
        Ok(self.verdict(self.text.len().saturating_sub(held)))
    }
}
