use std::sync::{Arc, Mutex};
use std::time::Duration;

use mortise_trace::Span;

use crate::fakes::{ask, call, chat, model, says};
use crate::observer::ModelObserver;
use crate::{
    FinishReason, GuardedPart, Observer, Outcome, Request, RequestFields, Service, ServiceConfig,
    ServiceError, Summary, ToolRun, Usage,
};

/// Records every report.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    models: Vec<String>,
    admitted: u32,
    first: Vec<Duration>,
    next: u32,
    ended: Vec<(Outcome, Usage, Option<Duration>)>,
    refused: Vec<Option<String>>,
}

impl Recorder {
    fn with<T>(&self, read: impl FnOnce(&mut Record) -> T) -> T {
        read(&mut self.0.lock().expect("lock"))
    }
}

impl Observer for Recorder {
    fn model(&self, name: &str) -> Arc<dyn ModelObserver> {
        self.with(|record| record.models.push(name.to_owned()));
        Arc::new(self.clone())
    }

    fn refused(&self, model: Option<&str>, _: &ServiceError) {
        self.with(|record| record.refused.push(model.map(str::to_owned)));
    }
}

impl ModelObserver for Recorder {
    fn admitted(&self, _: Duration, _: &Span) {
        self.with(|record| record.admitted += 1);
    }

    fn first_token(&self, after: Duration, _: &Span) {
        self.with(|record| record.first.push(after));
    }

    fn next_token(&self, _: Duration) {
        self.with(|record| record.next += 1);
    }

    fn tool_ran(&self, _: &ToolRun<'_>) {}

    fn refused_by(&self, _: &str, _: GuardedPart) {}

    fn ended(&self, summary: &Summary<'_>) {
        let ended = (summary.outcome, summary.usage, summary.first_token);
        self.with(|record| record.ended.push(ended));
    }
}

fn observed() -> (Recorder, Service) {
    let recorder = Recorder::default();
    let config = ServiceConfig {
        observer: Arc::new(recorder.clone()),
        ..ServiceConfig::default()
    };
    let models = vec![model(says("hello the world"))];
    let service = Service::new(config, models, Vec::new(), &[], Vec::new()).expect("a good setup");
    (recorder, service)
}

#[tokio::test]
async fn the_observer_hears_of_everything_once() {
    let (recorder, service) = observed();
    let mut fields = chat("hi");
    fields.n = Some(2);
    let all = ask(&service, fields.clone()).await.expect("an answer");
    let usage = all.usage.expect("completed");
    recorder.with(|record| {
        assert_eq!(record.models, ["demo"], "asked for once for each model");
        assert_eq!(
            (record.admitted, record.first.len()),
            (1, 1),
            "of a request"
        );
        // Two choices, whose first tokens follow no other.
        assert_eq!(record.next, usage.completion_tokens - 2);
        let first = Some(record.first[0]);
        let outcome = Outcome::Finished(FinishReason::Stop);
        assert_eq!(record.ended, [(outcome, usage, first)]);
    });
    fields.max_tokens = Some(1);
    ask(&service, fields.clone()).await.expect("an answer");
    let request = Request::check(fields.clone()).expect("good");
    drop(service.start(call(), request).await.expect("an answer"));
    fields.max_tokens = Some(10_000_000);
    ask(&service, fields.clone()).await.expect_err("too long");
    let misnamed = RequestFields {
        model: "DEMO".to_owned(),
        ..fields
    };
    ask(&service, misnamed).await.expect_err("too long");
    recorder.with(|record| {
        let outcomes = record.ended.iter().map(|(outcome, ..)| *outcome);
        let expected = [
            Outcome::Finished(FinishReason::Stop),
            Outcome::Finished(FinishReason::Length),
            Outcome::Cancelled,
        ];
        assert_eq!(outcomes.collect::<Vec<_>>(), expected);
        let public = Some("demo".to_owned());
        assert_eq!(record.refused, [public.clone(), public]);
    });
}

#[tokio::test]
async fn prompts_of_one_request_are_numbered_through_and_reported_each() {
    let (recorder, service) = observed();
    let fields = RequestFields {
        n: Some(2),
        ..chat("hi")
    };
    let request = || Request::check(fields.clone()).expect("good");
    let started = service.start_all(call(), vec![request(), request(), request()]);
    let all = crate::fakes::collect(started.await.expect("an answer")).await;
    assert_eq!(all.choices.len(), 6);
    let content = |choice: &crate::fakes::CollectedChoice| choice.content == "hello the world";
    assert!(all.choices.iter().all(content), "{:?}", all.choices);
    let total = all.usage.expect("completed");
    recorder.with(|record| {
        let mut sum = Usage::default();
        for (outcome, usage, _) in &record.ended {
            assert_eq!(*outcome, Outcome::Finished(FinishReason::Stop));
            sum += *usage;
        }
        assert_eq!((record.ended.len(), sum), (3, total));
    });
    // The last prompt is refused: those before it are cancelled.
    let long = RequestFields {
        max_tokens: Some(10_000_000),
        ..fields.clone()
    };
    let long = Request::check(long).expect("good");
    let started = service.start_all(call(), vec![request(), long]).await;
    started.expect_err("too long");
    recorder.with(|record| {
        assert_eq!(record.ended[3].0, Outcome::Cancelled);
        assert_eq!((record.ended.len(), record.refused.len()), (4, 1));
    });
}
