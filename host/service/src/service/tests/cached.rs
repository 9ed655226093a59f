use std::sync::Arc;
use std::time::Duration;

use mortise_plugin::{Allowance, Decision};

use super::allow;
use crate::fakes::{FakePolicy, call, chat, collect, model, says};
use crate::plugins::DecidePolicy;
use crate::{CacheConfig, CacheRule, CacheUse, Request, RequestFields, Service, ServiceConfig};

fn service(policies: Vec<Arc<dyn DecidePolicy>>) -> Service {
    let config = ServiceConfig {
        response_cache: CacheConfig {
            max_bytes: 1 << 20,
            tenant_max_bytes: 1 << 20,
            max_entry_bytes: 1 << 16,
            max_age: Duration::from_secs(60),
            rules: vec![CacheRule::default()],
        },
        ..ServiceConfig::default()
    };
    let models = vec![model(says("hello the world"))];
    Service::new(config, models, policies, &[], Vec::new()).expect("a good setup")
}

fn asked() -> RequestFields {
    RequestFields {
        temperature: Some(0.0),
        ..chat("hi")
    }
}

async fn came(service: &Service, fields: RequestFields) -> (Option<CacheUse>, Vec<String>) {
    let request = Request::check(fields).expect("good");
    let answer = service.start(call(), request).await.expect("an answer");
    let came = answer.cache();
    let all = collect(answer).await;
    assert!(all.usage.is_some(), "it is complete");
    let texts = all.choices.into_iter().map(|choice| choice.content);
    (came, texts.collect())
}

#[tokio::test]
async fn feature_k3_all_choices_come_again_under_their_numbers() {
    let service = service(Vec::new());
    let several = RequestFields {
        n: Some(3),
        ..asked()
    };
    let best = RequestFields {
        n: Some(2),
        best_of: Some(4),
        ..asked()
    };
    for fields in [several, best] {
        let (first, texts) = came(&service, fields.clone()).await;
        assert_eq!(first, Some(CacheUse::Miss));
        assert_eq!(came(&service, fields).await, (Some(CacheUse::Hit), texts));
    }
    let two = [asked(), asked()].map(|fields| Request::check(fields).expect("good"));
    let answer = service.start_all(call(), two.into()).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.cache(), Some(CacheUse::Miss));
    assert_eq!(collect(answer).await.choices.len(), 2);
    let two = [asked(), asked()].map(|fields| Request::check(fields).expect("good"));
    let answer = service.start_all(call(), two.into()).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.cache(), Some(CacheUse::Hit));
    let contents: Vec<String> = collect(answer)
        .await
        .choices
        .into_iter()
        .map(|choice| choice.content)
        .collect();
    assert_eq!(contents, ["hello the world", "hello the world"]);
}

#[tokio::test]
async fn feature_k3_what_is_left_before_its_end_is_not_kept() {
    let service = service(Vec::new());
    let request = Request::check(asked()).expect("good");
    let mut answer = service.start(call(), request).await.expect("an answer");
    answer.next().await.expect("an event");
    drop(answer);
    assert_eq!(came(&service, asked()).await.0, Some(CacheUse::Miss));
    assert_eq!(came(&service, asked()).await.0, Some(CacheUse::Hit));
}

#[tokio::test]
async fn feature_k3_other_plugins_and_models_empty_the_cache() {
    let service = service(Vec::new());
    came(&service, asked()).await;
    assert_eq!(service.response_cache().entries, 1);
    let models = vec![model(says("hello the world"))];
    service
        .replace(models, Vec::new(), &[], Vec::new())
        .expect("a good set");
    assert_eq!(service.response_cache().entries, 0);
    assert_eq!(came(&service, asked()).await.0, Some(CacheUse::Miss));
}

#[tokio::test]
async fn feature_k3_a_policy_may_decline() {
    let decision = |value: &str| {
        let Decision::Allow(allowance) = allow() else {
            panic!("it allows");
        };
        let header = ("x-mortise-cache-control".to_owned(), value.to_owned());
        FakePolicy::new(Ok(Decision::Allow(Allowance {
            headers: vec![header],
            ..allowance
        })))
    };
    let service_of = |value: &str| service(vec![decision(value) as Arc<dyn DecidePolicy>]);
    for (value, second) in [
        ("no-store", CacheUse::Miss),
        ("no-cache", CacheUse::Miss),
        ("private", CacheUse::Hit),
    ] {
        let service = service_of(value);
        came(&service, asked()).await;
        assert_eq!(came(&service, asked()).await.0, Some(second), "{value}");
        let kept = usize::from(value != "no-store");
        assert_eq!(service.response_cache().entries, kept, "{value}");
    }
}
