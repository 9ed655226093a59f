//! Runs the function that reads a format, piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::Text;
use crate::Fault;
use crate::output_parser::{Event, Finish, Session, Setup};
use crate::tools::Tools;

/// One answer being read by a function.
pub struct Parsing {
    text: Text,
    /// `None` once the function has returned.
    reading: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Parsing {
    /// An answer in which these tools may be called, to be read by this function.
    /// `opens_reasoning`: the prompt ended inside a block of reasoning.
    pub fn new<F>(tools: Tools, opens_reasoning: bool, read: F) -> Self
    where
        F: AsyncFnOnce(&mut Text) + 'static,
    {
        let text = Text::new(tools, opens_reasoning);
        let mut reader = text.reader();
        let reading = async move {
            read(&mut reader).await;
            // A format that ends before the answer does: the rest is content.
            reader.content_until_any(&[]).await;
        };
        Self {
            text,
            reading: Some(Box::pin(reading)),
        }
    }

    /// Take more text.
    pub fn feed(&mut self, text: &str) -> Vec<Event> {
        self.text.append(text);
        self.go_on()
    }

    /// The answer has ended: hand out what was held back.
    pub fn close(&mut self) -> Vec<Event> {
        self.text.end();
        self.go_on()
    }

    /// Look-ups of a character or a mark so far: the work that the text has made. A test
    /// of a format holds with it that no text makes it read again and again.
    pub fn reads(&self) -> usize {
        self.text.reads()
    }

    fn go_on(&mut self) -> Vec<Event> {
        if let Some(reading) = &mut self.reading {
            // Nobody is waiting to be woken: the next piece of text comes here.
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(()) = reading.as_mut().poll(&mut context) {
                self.reading = None;
            }
        }
        self.text.take_events()
    }
}

impl Session for Parsing {
    fn feed(&mut self, text: &str, _tokens: &[u32]) -> Result<Vec<Event>, Fault> {
        Ok(self.feed(text))
    }

    fn close(&mut self, _reason: Finish) -> Result<Vec<Event>, Fault> {
        Ok(self.close())
    }
}

/// A session that reads an answer with this function: the whole of most parsers'
/// [`open`](crate::output_parser::OutputParser::open).
///
/// # Errors
/// When the declared tools make no sense.
pub fn open<F>(setup: &Setup, read: F) -> Result<Option<Box<dyn Session>>, Fault>
where
    F: AsyncFnOnce(&mut Text) + 'static,
{
    let tools = Tools::allowed(setup)?;
    let parsing = Parsing::new(tools, setup.opens_reasoning, read);
    Ok(Some(Box::new(parsing)))
}
