//! Plugins are replaced while requests are under way (case J8).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use mortise_models::{Script, ScriptLine};
use mortise_plugin::{
    Allowance, Decision, Facts, Finish, GrammarSource, ParserEvent, ParserSetup, ParserTraits,
    PluginError, Principal, RenderedPrompt, Segment, TemplateInput, UsageReport,
};
use tokio::sync::Semaphore;

use crate::fakes::{ask, chat, collect, loaded, model, service};
use crate::plugins::{
    DecidePolicy, ParseOutput, ParseSession, PluginFuture, RenderChat, RequestId,
};
use crate::{
    HoldModels, LifecycleError, ModelHold, PluginRoutes, Request, ServedModel, Service,
    ServiceConfig, ServiceError,
};

/// The plugins of one set: template, parser and policy name themselves in all they do.
struct Tagged {
    set: u64,
    /// Requests that were allowed and not accounted for yet, over all sets.
    open: Arc<AtomicU64>,
}

impl RenderChat for Tagged {
    fn render<'a>(
        &'a self,
        _: &'a RequestId,
        _: TemplateInput,
    ) -> PluginFuture<'a, Result<RenderedPrompt, PluginError>> {
        let prompt = RenderedPrompt {
            segments: vec![Segment::Plain(format!("set {}", self.set % 2))],
            ..RenderedPrompt::default()
        };
        Box::pin(async move {
            // A swap may come between any two calls of a request.
            tokio::task::yield_now().await;
            Ok(prompt)
        })
    }
}

impl ParseOutput for Tagged {
    fn traits(&self) -> ParserTraits {
        ParserTraits::default()
    }

    fn constraint<'a>(
        &'a self,
        _: &'a RequestId,
        _: &'a ParserSetup,
        _: Option<&'a GrammarSource>,
    ) -> PluginFuture<'a, Result<Option<GrammarSource>, PluginError>> {
        Box::pin(async { Ok(None) })
    }

    fn open<'a>(
        &'a self,
        _: &'a RequestId,
        _: &'a ParserSetup,
    ) -> PluginFuture<'a, Result<Option<Box<dyn ParseSession>>, PluginError>> {
        let session = TaggedSession {
            tag: Some(format!("{}: ", self.set % 2)),
        };
        Box::pin(async move { Ok(Some(Box::new(session) as Box<dyn ParseSession>)) })
    }
}

/// Puts the tag before the first text.
struct TaggedSession {
    tag: Option<String>,
}

impl ParseSession for TaggedSession {
    fn feed<'a>(
        &'a mut self,
        text: &'a str,
        _: &'a [u32],
    ) -> PluginFuture<'a, Result<Vec<ParserEvent>, PluginError>> {
        let text = self.tag.take().unwrap_or_default() + text;
        Box::pin(async move { Ok(vec![ParserEvent::Content(text)]) })
    }

    fn close(
        self: Box<Self>,
        _: Finish,
    ) -> PluginFuture<'static, Result<Vec<ParserEvent>, PluginError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl DecidePolicy for Tagged {
    fn authorize<'a>(
        &'a self,
        _: &'a RequestId,
        _: Facts,
    ) -> PluginFuture<'a, Result<Decision, PluginError>> {
        self.open.fetch_add(1, Ordering::SeqCst);
        let allowance = Allowance {
            principal: Principal {
                subject: "alice".to_owned(),
                ..Principal::default()
            },
            lease: Some(self.set.to_string()),
            ..Allowance::default()
        };
        Box::pin(async move { Ok(Decision::Allow(allowance)) })
    }

    fn account<'a>(
        &'a self,
        _: &'a RequestId,
        usage: UsageReport,
    ) -> PluginFuture<'a, Result<(), PluginError>> {
        assert_eq!(
            usage.lease,
            Some(self.set.to_string()),
            "the policy that allowed a request hears of its end"
        );
        self.open.fetch_sub(1, Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }
}

fn script() -> Script {
    let line = |when: &str, say: &str| ScriptLine {
        when: when.to_owned(),
        say: say.to_owned(),
    };
    Script {
        lines: vec![line("set 0", "even"), line("set 1", "odd")],
        ..Script::default()
    }
}

/// The model and the policies of a set.
fn set(
    base: &ServedModel,
    set: u64,
    open: &Arc<AtomicU64>,
) -> (Vec<ServedModel>, Vec<Arc<dyn DecidePolicy>>) {
    let tagged = Arc::new(Tagged {
        set,
        open: Arc::clone(open),
    });
    let mut model = base.clone();
    let plugins = &mut loaded(&mut model).plugins;
    plugins.chat_template = PluginRoutes::one(tagged.clone());
    plugins.parser = PluginRoutes::one(tagged.clone());
    (vec![model], vec![tagged])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j8_a_thousand_swaps_under_load_drop_and_mix_up_nothing() {
    let open = Arc::new(AtomicU64::new(0));
    let base = model(script());
    let service = Arc::new(service(base.clone(), Vec::new()));
    let (models, policies) = set(&base, 0, &open);
    service
        .replace(models, policies, &[], Vec::new())
        .expect("a good set");
    let over = Arc::new(AtomicBool::new(false));
    // Each answer lets one swap happen, so that swaps meet requests however fast either is.
    let answered = Arc::new(Semaphore::new(0));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (service, over) = (Arc::clone(&service), Arc::clone(&over));
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let all = ask(&service, chat("hi")).await.expect("an answer");
                    assert!(all.error.is_none(), "{:?}", all.error);
                    let content = &all.choices[0].content;
                    assert!(
                        content == "0: even" || content == "1: odd",
                        "rendered and parsed by two sets: {content}"
                    );
                    answered.add_permits(1);
                }
            })
        })
        .collect();
    for number in 1..=1000 {
        let (models, policies) = set(&base, number, &open);
        service
            .replace(models, policies, &[], Vec::new())
            .expect("a good set");
        answered.acquire().await.expect("open").forget();
        let failed = callers.iter().find(|caller| caller.is_finished());
        assert!(failed.is_none(), "a caller has given up");
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no caller panicked");
    }
    service.settle().await;
    assert_eq!(open.load(Ordering::SeqCst), 0, "every policy was told");
}

#[tokio::test]
async fn a_request_ends_with_the_plugins_that_it_began_with() {
    let open = Arc::new(AtomicU64::new(0));
    let base = model(script());
    let service = service(base.clone(), Vec::new());
    let (models, policies) = set(&base, 0, &open);
    let kept = Arc::downgrade(&policies[0]);
    service
        .replace(models, policies, &[], Vec::new())
        .expect("a good set");
    let request = Request::check(chat("hi")).expect("good");
    let answer = service
        .start(crate::fakes::call(), request)
        .await
        .expect("starts");
    let (models, policies) = set(&base, 1, &open);
    service
        .replace(models, policies, &[], Vec::new())
        .expect("a good set");
    assert!(kept.upgrade().is_some(), "the answer still needs its set");
    assert_eq!(collect(answer).await.choices[0].content, "0: even");
    service.settle().await;
    assert!(kept.upgrade().is_none(), "nothing keeps the old set");
    let after = ask(&service, chat("hi")).await.expect("an answer");
    assert_eq!(after.choices[0].content, "1: odd");
}

#[tokio::test]
async fn a_set_that_makes_no_sense_changes_nothing() {
    let base = model(script());
    let service = service(base.clone(), Vec::new());
    let twice = vec![base.clone(), base];
    service
        .replace(twice, Vec::new(), &[], Vec::new())
        .expect_err("two models of one name");
    ask(&service, chat("hi")).await.expect("the old set serves");
}

/// Unloads the model for which a request waits, as an operator may at that moment.
#[derive(Default)]
struct Unloads(OnceLock<Arc<Service>>);

impl HoldModels for Unloads {
    fn hold<'a>(&'a self, _: &'a str) -> ModelHold<'a> {
        Box::pin(async move {
            if let Some(service) = self.0.get() {
                let mut unloaded = model(Script::default());
                unloaded.loaded = None;
                let swapped = service.replace(vec![unloaded], Vec::new(), &[], Vec::new());
                swapped.expect("a good setup");
            }
            Ok(None)
        })
    }
}

#[tokio::test]
async fn feature_x4_l11_a_model_that_goes_between_admission_and_use_is_said_to_be_unloaded() {
    let holder = Arc::new(Unloads::default());
    let config = ServiceConfig {
        holder: Arc::<Unloads>::clone(&holder),
        ..ServiceConfig::default()
    };
    let models = vec![model(Script::default())];
    let service = Service::new(config, models, Vec::new(), &[], Vec::new()).expect("a good setup");
    let service = Arc::new(service);
    // Requests of one model run beside each other, and each looks again once it holds the model.
    let (one, other) = (ask(&service, chat("hi")), ask(&service, chat("hi")));
    let (one, other) = tokio::join!(one, other);
    assert!(one.is_ok() && other.is_ok());
    assert!(holder.0.set(Arc::clone(&service)).is_ok());
    let refused = ask(&service, chat("hi")).await;
    let refused = refused.map(drop).expect_err("the model is gone");
    let ServiceError::Model(error @ LifecycleError::Unloaded(_)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.code(), "model_unloaded");
}
