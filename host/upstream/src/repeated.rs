//! Members that every event of an answer begins with, such as its id and the name of the model: half of an event, which
//! is read once.

use crate::chunk::StreamChunk;

/// Member that follows those that are repeated.
const CHOICES: &str = "\"choices\":";

/// Reader of the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// Beginning of the first event as it was sent, up to its choices; empty if something in it matters.
    repeated: Option<String>,
    /// The rest of an event as an object.
    rest: String,
}

impl EventReader {
    /// Read an event. It means the same as read on its own.
    pub(crate) fn read(&mut self, event: &str) -> serde_json::Result<StreamChunk> {
        let Self { repeated, rest } = self;
        let Some(known) = repeated else {
            let chunk = serde_json::from_str(event)?;
            *repeated = Some(beginning(event).unwrap_or_default().to_owned());
            return Ok(chunk);
        };
        let after = event.strip_prefix(known.as_str());
        if let Some(after) = after.filter(|_| !known.is_empty())
            && after.starts_with(CHOICES)
        {
            rest.clear();
            rest.push('{');
            rest.push_str(after);
            if let Ok(chunk) = serde_json::from_str(rest) {
                return Ok(chunk);
            }
        }
        serde_json::from_str(event)
    }
}

/// Beginning of an event up to its choices, if it is made of whole members of which none matters.
fn beginning(event: &str) -> Option<&str> {
    let (before, _) = event.split_once(CHOICES)?;
    let members = before.strip_suffix(',')?;
    // Text within a member may look like the name of another: then this is no object.
    let object = format!("{members}}}");
    let read: StreamChunk = serde_json::from_str(&object).ok()?;
    let means_nothing = read.choices.is_none() && read.usage.is_none() && read.error.is_none();
    means_nothing.then_some(before)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMBERS: [&str; 8] = [
        r#""id":"a""#,
        r#""model":"m\"choices\":""#,
        r#""error":{"message":"no"}"#,
        r#""usage":{"prompt_tokens":1}"#,
        r#""choices":[{"index":0,"delta":{"content":"x"}}]"#,
        r#""choices":[]"#,
        r#""created":1"#,
        r#""choices": [{"finish_reason":"stop"}]"#,
    ];

    fn told(chunk: serde_json::Result<StreamChunk>) -> Result<String, String> {
        chunk
            .map(|chunk| format!("{chunk:?}"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_repeated_is_read_once() {
        let event = |text: &str| {
            format!(r#"{{"id":"a","model":"m","choices":[{{"delta":{{"content":"{text}"}}}}]}}"#)
        };
        let mut events = EventReader::default();
        assert!(events.read(&event("one")).is_ok());
        let repeated = events.repeated.clone();
        assert_eq!(repeated.as_deref(), Some(r#"{"id":"a","model":"m","#));
        assert!(events.read(&event("two")).is_ok());
        assert!(events.rest.ends_with(r#""two"}}]}"#), "{}", events.rest);
    }

    #[test]
    fn a_beginning_that_matters_is_read_each_time() {
        for before in [r#""usage":{}"#, r#""error":"e""#, r#""a":"b"#] {
            assert_eq!(beginning(&format!("{{{before},\"choices\":[]}}")), None);
        }
        assert_eq!(beginning(r#"{"choices":[]}"#), None);
        assert_eq!(beginning("[]"), None);
    }

    proptest! {
        #[test]
        fn an_event_means_the_same_as_on_its_own(
            sent in proptest::collection::vec(proptest::collection::vec(0..MEMBERS.len(), 0..5), 1..6),
            cut in 0..4_usize,
        ) {
            let mut events = EventReader::default();
            for members in sent {
                let members: Vec<&str> = members.into_iter().map(|at| MEMBERS[at]).collect();
                let event = format!("{{{}}}", members.join(","));
                let event = &event[..event.floor_char_boundary(event.len().saturating_sub(cut / 3))];
                prop_assert_eq!(told(events.read(event)), told(serde_json::from_str(event)));
            }
        }
    }
}
