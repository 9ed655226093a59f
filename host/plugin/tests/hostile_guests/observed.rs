//! Tracing of calls into plugins.

use std::collections::HashMap;
use std::fmt::Debug;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Instrument as _, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::guests::{binding, render, shared};

/// A span: its name, its parent's name, its fields.
#[derive(Debug)]
struct Span {
    name: &'static str,
    parent: Option<&'static str>,
    fields: HashMap<&'static str, String>,
}

/// Keeps every span that begins.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

struct Fields<'a>(&'a mut HashMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = HashMap::new();
        attributes.record(&mut Fields(&mut fields));
        let span = context.span(id).expect("a span that begins");
        self.0.lock().unwrap().push(Span {
            name: span.name(),
            parent: span.parent().map(|parent| parent.name()),
            fields,
        });
    }
}

/// tracing remembers of each place in the code whether anybody listens, and while there is one
/// subscriber it asks that of the thread which comes by first. The threads of other tests have none,
/// so this test has a process of its own.
#[test]
fn each_call_is_a_span_below_that_of_its_request() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "observed::alone", "--ignored"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("1 passed"), "{printed}");
}

#[test]
#[ignore = "started by each_call_is_a_span_below_that_of_its_request"]
fn alone() {
    let spans = Spans::default();
    let subscriber = tracing_subscriber::registry().with(spans.clone());
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let template = shared().template(binding()).await;
            let request = tracing::info_span!("request");
            let called = render(&template, "echo:a").instrument(request);
            assert_eq!(called.await.unwrap(), "a");
        });
    });
    let spans = spans.0.lock().unwrap();
    let call = spans.iter().find(|span| span.name == "plugin.call");
    let call = call.unwrap_or_else(|| panic!("no call among {spans:?}"));
    assert_eq!(call.parent, Some("request"));
    assert_eq!(call.fields["plugin"], "guest");
    assert_eq!(call.fields["fn"], "chat-template.render");
}
