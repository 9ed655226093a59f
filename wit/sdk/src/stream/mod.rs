//! Reads generated text while it is being written.
//!
//! The format of a model is written down as one async function that reads an answer from beginning to
//! end, as if all of it were there:
//!
//! ```
//! use mortise_plugin_sdk::stream::{CallKeys, Text};
//!
//! /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, behind reasoning in `<think>`.
//! async fn read(text: &mut Text) {
//!     text.reasoning("<think>", "</think>").await;
//!     while text.content_until("<tool_call>").await {
//!         if text.json_calls(CallKeys::default()).await.is_some() {
//!             text.close("</tool_call>").await;
//!         }
//!     }
//! }
//! ```
//!
//! Where the text runs out the function waits, and goes on with the next piece. It cannot see where
//! pieces begin and end, so how the text was cut changes nothing; and it reads each character a bounded
//! number of times, so the time is linear in the text.
//!
//! Text that was read is passed on in one of three ways. [`Text::content_until`] and [`Text::reasoning`] pass
//! text on as it comes. [`Text::json_arguments`], [`Text::json_calls`], [`Text::python_calls`] and
//! [`Text::call`] make tool calls. All else that was read since then is held back, and is handed out as
//! content, exactly as generated, if no call came of it. So a reader gives up on a call by returning
//! (`None`, from the readers that may fail), and nothing is lost.

mod arguments;
mod calls;
mod python;
mod reasoning;
mod session;
mod text;

pub use arguments::CallKeys;
pub use session::{Parsing, open};
pub use text::Text;

/// Bytes of a name, a key or an id; longer ones are none.
pub const MAX_NAME_BYTES: usize = 256;

/// Nesting of literals that is still read.
pub const MAX_DEPTH: usize = 64;
