use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fakes::{ask, call, chat, model, says};
use crate::{Observer, Outcome, Request, Service, ServiceConfig, ServiceError, Summary};

#[derive(Default)]
struct Counts {
    first: Mutex<u32>,
    next: Mutex<u32>,
    ended: Mutex<Vec<Outcome>>,
    refused: Mutex<u32>,
}

impl Observer for Counts {
    fn refused(&self, _: &str, _: &ServiceError) {
        *self.refused.lock().expect("lock") += 1;
    }

    fn first_token(&self, _: &str, _: Duration) {
        *self.first.lock().expect("lock") += 1;
    }

    fn next_token(&self, _: &str, _: Duration) {
        *self.next.lock().expect("lock") += 1;
    }

    fn ended(&self, summary: &Summary<'_>) {
        self.ended.lock().expect("lock").push(summary.outcome);
    }
}

#[tokio::test]
async fn the_observer_hears_of_everything_once() {
    let counts = Arc::new(Counts::default());
    let config = ServiceConfig {
        observer: counts.clone(),
        ..ServiceConfig::default()
    };
    let service = Service::new(
        config,
        vec![model(says("hello the world"))],
        Vec::new(),
        &[],
    )
    .expect("a good setup");
    let mut fields = chat("hi");
    fields.n = Some(2);
    let all = ask(&service, fields.clone()).await.expect("an answer");
    let tokens = all.usage.expect("completed").completion_tokens;
    assert_eq!(*counts.first.lock().expect("lock"), 2);
    assert_eq!(*counts.next.lock().expect("lock"), tokens - 2);
    fields.max_tokens = Some(1);
    ask(&service, fields.clone()).await.expect("an answer");
    let request = Request::check(fields.clone()).expect("good");
    drop(service.start(call(), request).await.expect("an answer"));
    fields.max_tokens = Some(10_000_000);
    ask(&service, fields).await.expect_err("too long");
    let ended = counts.ended.lock().expect("lock").clone();
    assert_eq!(ended, [Outcome::Stop, Outcome::Length, Outcome::Cancelled]);
    assert_eq!(*counts.refused.lock().expect("lock"), 1);
}
