use std::sync::{Arc, Mutex};

use mortise_plugin::{Allowance, Decision, Principal};

use crate::fakes::{FakePolicy, ask, change, chat, model, says};
use crate::{RequestFields, Service, ServiceConfig};

/// Keeps whose turn each sequence takes and with whom it shares, and refuses it.
#[derive(Default)]
struct Turns(Mutex<Vec<(mortise_engine::Share, Option<Arc<str>>)>>);

impl mortise_models::TokenRuntime for Turns {
    fn submit(
        &self,
        request: mortise_engine::SequenceRequest,
    ) -> Result<mortise_engine::TokenStream, mortise_engine::SubmitError> {
        let turn = (request.share, request.salt);
        self.0.lock().expect("lock").push(turn);
        Err(mortise_engine::SubmitError::Stopped)
    }

    fn context_length(&self) -> usize {
        4096
    }

    fn load(&self) -> mortise_engine::EngineLoad {
        mortise_engine::EngineLoad::default()
    }
}

#[tokio::test]
async fn tenants_share_the_engine_and_not_what_is_cached() {
    let caller = |subject: &str, tenant: Option<&str>| {
        FakePolicy::new(Ok(Decision::Allow(Allowance {
            principal: Principal {
                subject: subject.to_owned(),
                tenant: tenant.map(str::to_owned),
                ..Principal::default()
            },
            ..Allowance::default()
        })))
    };
    let turn = async |policy: Arc<FakePolicy>, share_prefixes, key: Option<&str>| {
        let turns = Arc::new(Turns::default());
        let mut served = model(says("x"));
        change(&mut served, |generator| generator.runtime = turns.clone());
        let config = ServiceConfig {
            tenant_weights: [("red".to_owned(), 4)].into(),
            share_prefixes,
            ..ServiceConfig::default()
        };
        let service =
            Service::new(config, vec![served], vec![policy], &[], Vec::new()).expect("a service");
        let fields = RequestFields {
            fairness_key: key.map(str::to_owned),
            ..chat("hi")
        };
        assert!(ask(&service, fields).await.is_err());
        turns.0.lock().expect("lock").pop().expect("a sequence")
    };
    let (share, salt) = turn(caller("a", Some("red")), false, Some(" k ")).await;
    assert_eq!((share.weight, &*share.key), (4, "k"));
    assert_eq!(salt.as_ref(), Some(&share.tenant));
    let same = turn(caller("b", Some("red")), false, None).await;
    assert_eq!(same.1, salt, "callers of one tenant share");
    let other = turn(caller("a", Some("blue")), false, None).await;
    assert_ne!(other.1, salt);
    assert_eq!((other.0.weight, &*other.0.key), (1, ""));
    let nameless = turn(caller("red", None), false, None).await;
    assert!(nameless.1.is_some_and(|own| Some(own) != salt));
    assert_eq!(turn(caller("a", Some("red")), true, None).await.1, None);
}
