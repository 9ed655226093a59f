//! Every function of a kind, called as a request would, beside callers whose answers must stay right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mortise_plugin::{
    AnswerPart, Binding, ChatTemplate, ChunkSizes, Component, ComponentTools, Decision, Facts,
    Finish, Grammar, GrammarSource, GuardContext, Guardrail, Kind, LoadError, OutputParser,
    ParserEvent, Passage, PassageBudget, PluginError, PluginHost, Policy, Retriever,
    RetrieverContext, SourceText, TemplateInput, ToolAnswer, ToolCaller, UsageReport,
};
use tokio::task::JoinHandle;

use super::guests::{Fixture, binding, context, render, setup};

/// Lock of tests that look at the memory of the process, which run one at a time.
pub(crate) static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Memory that may stay with the process after an attack: 64 MiB (V5).
const KEPT_BYTES: u64 = 64 << 20;

/// Usage report that a policy is given at the end of a request.
pub(crate) fn usage() -> UsageReport {
    UsageReport {
        request_id: String::new(),
        lease: None,
        subject: String::new(),
        tenant: None,
        model: String::new(),
        prompt_tokens: 0,
        cached_tokens: 0,
        completion_tokens: 0,
        finish: Finish::Stop,
        wall_ms: 0,
    }
}

/// Reason for which a guest did not get through.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The guest was not loaded, or not bound.
    Load(LoadError),
    /// A call failed.
    Call(PluginError),
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        Self::Call(error)
    }
}

impl Failure {
    /// Text of the failure, as the table in the documentation has it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Call(error) => format!("`{}`", error.fault.label()),
            Self::Load(LoadError::Prepare { source, .. }) => {
                format!("not taken: `{}`", source.fault.label())
            }
            Self::Load(error) => {
                let reason = match error {
                    LoadError::TooLarge { .. } => "too large",
                    LoadError::TooCostly { what, .. } => {
                        return format!("refused: too many {what}");
                    }
                    LoadError::NotWasm { .. } => "no WebAssembly",
                    LoadError::CoreModule { .. } => "no component",
                    LoadError::Compile { .. } => "does not compile",
                    LoadError::Version { .. } => "another version",
                    LoadError::NoKind { .. } => "no kind of plugin",
                    LoadError::Import { .. } | LoadError::Outer { .. } => "not grantable",
                    LoadError::Interface { .. } => "does not fit",
                    other => panic!("{other}"),
                };
                format!("refused: {reason}")
            }
        }
    }
}

/// Size of chunks that a retriever is asked for.
pub(crate) const SIZES: ChunkSizes = ChunkSizes {
    max_tokens: 10,
    overlap_tokens: 0,
    about_bytes: 40,
    max_chunks: 100,
};

/// Room for the passages that a retriever chooses.
pub(crate) const BUDGET: PassageBudget = PassageBudget {
    passages: 2,
    tokens: 20,
};

/// A document of two lines.
pub(crate) fn document() -> SourceText {
    SourceText {
        name: "a.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        text: "wörld peace\nor none\n".to_owned(),
    }
}

/// Call every function of a kind in its turn.
pub(crate) async fn exercise(
    host: &PluginHost,
    component: &Arc<Component>,
    kind: Kind,
    binding: Binding,
) -> Result<(), Failure> {
    let context = context();
    match kind {
        Kind::ChatTemplate => {
            let template = ChatTemplate::bind(host, component, binding).await?;
            template.render(&context, TemplateInput::default()).await?;
        }
        Kind::OutputParser => {
            let parser = OutputParser::bind(host, component, binding).await?;
            parser.constraint(&context, &setup(), None).await?;
            if let Some(mut session) = parser.open(&context, &setup()).await? {
                session.feed("text", &[1]).await?;
                session.close(Finish::Stop).await?;
            }
        }
        Kind::Grammar => {
            let grammar = Grammar::bind(host, component, binding).await?;
            let source = GrammarSource::Regex("only".to_owned());
            let mut matcher = grammar.compile(&context, &source).await?;
            matcher.mask(&mut vec![0; 3]).await?;
            matcher.advance(&[0], &mut vec![0; 3]).await?;
            matcher.probe(&[1]).await?;
            matcher.rollback(1).await?;
            matcher.fork().await?.mask(&mut vec![0; 3]).await?;
        }
        Kind::Policy => {
            let policy = Policy::bind(host, component, binding).await?;
            policy.authorize(&context, Facts::default()).await?;
            policy.account(&context, usage()).await?;
        }
        Kind::Tool => {
            let tools = ComponentTools::bind(host, component, binding).await?;
            let caller = ToolCaller::default();
            let arguments = r#"{"text":"nothing"}"#;
            tools.call(&context, &caller, "does", arguments).await?;
        }
        Kind::Guardrail => {
            let guardrail = Guardrail::bind(host, component, binding).await?;
            let told = GuardContext::default();
            guardrail.check_input(&context, &told, "[]").await?;
            if let Some(mut session) = guardrail.open(&context, &told).await? {
                session.feed(&AnswerPart::Content, "text", 0).await?;
                session.close(Finish::Stop, 0).await?;
            }
        }
        Kind::Retriever => {
            let retriever = Retriever::bind(host, component, binding).await?;
            let told = RetrieverContext::default();
            retriever.chunk(&context, &told, document(), SIZES).await?;
            retriever.rewrite(&context, &told, "text").await?;
            let passages = [Passage::default(), Passage::default()];
            let assembled = retriever.assemble(&context, &told, "text", &passages, BUDGET);
            assembled.await?;
        }
    }
    Ok(())
}

/// Callers of well-behaved plugins of every kind, while somebody else misbehaves.
pub(crate) struct Bystander {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    callers: Vec<JoinHandle<()>>,
}

impl Bystander {
    /// Call and check until [`Bystander::finish`].
    pub(crate) async fn start(fixture: &Fixture) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let template = fixture.template(binding()).await;
        let parser = fixture.parser(binding()).await;
        let grammar = fixture.grammar(binding()).await;
        let policy = fixture.policy(binding()).await;
        let tools = fixture.tools(binding()).await;
        let (going, counted) = (Arc::clone(&over), Arc::clone(&rounds));
        let caller = async move {
            let only = GrammarSource::Regex("only".to_owned());
            while !going.load(Ordering::Relaxed) {
                let round = counted.fetch_add(1, Ordering::Relaxed);
                let text = format!("round {round}");
                assert_eq!(
                    render(&template, &format!("echo:{text}")).await.unwrap(),
                    text
                );
                let mut session = parser.open(&context(), &setup()).await.unwrap().unwrap();
                let said = session.feed(&text, &[7]).await.unwrap();
                assert_eq!(said, [ParserEvent::Content(format!("{text}[7]"))]);
                let mut row = vec![0; 3];
                let mut matcher = grammar.compile(&context(), &only).await.unwrap();
                matcher.advance(&[0, 0], &mut row).await.unwrap();
                assert_eq!(row, [4, 0, 0]);
                let facts = Facts {
                    model: Some("abstain".to_owned()),
                    ..Facts::default()
                };
                let decision = policy.authorize(&context(), facts).await.unwrap();
                assert_eq!(decision, Decision::Abstain);
                let arguments = format!("{{\"text\":\"{text}\"}}");
                let caller = ToolCaller::default();
                let said = tools.call(&context(), &caller, "does", &arguments).await;
                assert_eq!(said.unwrap(), ToolAnswer::Result(text));
                tokio::task::yield_now().await;
            }
        };
        Self {
            over,
            rounds,
            callers: vec![tokio::spawn(caller)],
        }
    }

    /// Assert that no honest caller has met anything wrong so far.
    #[track_caller]
    pub(crate) fn check(&self, after: &str) {
        let hurt = self.callers.iter().any(JoinHandle::is_finished);
        assert!(!hurt, "{after} hurt an honest caller");
    }

    pub(crate) async fn finish(self) {
        self.over.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.unwrap();
        }
        assert!(self.rounds.load(Ordering::Relaxed) > 0);
    }
}

/// Wait until the process holds about as much memory as before. Other tests of this process compile
/// plugins meanwhile, which takes much for a while.
pub(crate) async fn given_back(before: u64) {
    let patience = tokio::time::timeout(Duration::from_secs(120), async {
        while resident_bytes() > before + KEPT_BYTES {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let kept = patience.await.map_err(|_| resident_bytes() - before);
    assert_eq!(kept, Ok(()), "bytes were not given back");
}

/// Bytes of memory that the process holds.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
