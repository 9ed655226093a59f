//! Events of a running server as server-sent events: states of models, and what else a reader asks for.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use http::StatusCode;
use mortise_http::Problem;
use mortise_library::PullStatus;
use mortise_models::lifecycle::{ModelEvent, ModelStatus};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::keys::Standing;
use crate::limits::EVENT_INTERVAL;
use crate::{Admin, AuditEntry, aliases, keys, loras, quotas, watch};

/// Pause after which a silent stream sends a comment.
const HEARTBEAT: Duration = Duration::from_secs(15);

type Told = Result<Event, Infallible>;

/// Topic of the stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Topic {
    Models,
    Numbers,
    Requests,
    Plugins,
    Aliases,
    Loras,
    Keys,
    Quotas,
    Collections,
    Audit,
}

impl Topic {
    const NAMES: [(&'static str, Self); 10] = [
        ("models", Self::Models),
        ("numbers", Self::Numbers),
        ("requests", Self::Requests),
        ("plugins", Self::Plugins),
        ("aliases", Self::Aliases),
        ("loras", Self::Loras),
        ("keys", Self::Keys),
        ("quotas", Self::Quotas),
        ("collections", Self::Collections),
        ("audit", Self::Audit),
    ];
}

/// Events from now on, each topic after its present state.
pub(crate) async fn stream(
    State(admin): State<Arc<Admin>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let topics = topics_of(query.as_deref().unwrap_or_default())?;
    let permit = Arc::clone(&admin.streams).try_acquire_owned();
    let permit = permit.map_err(|_| too_many())?;
    let mut streams: Vec<BoxStream<'static, Told>> = Vec::new();
    if topics.contains(&Topic::Models) {
        streams.push(models(&admin).boxed());
    }
    if let (true, Some(audit)) = (topics.contains(&Topic::Audit), &admin.audit) {
        streams.push(entries(audit.listen()).boxed());
    }
    if topics.contains(&Topic::Collections) {
        streams.push(collections(&admin).boxed());
    }
    if topics.contains(&Topic::Quotas) {
        streams.push(quotas_of_keys(&admin).boxed());
    }
    let sampled = Sampled::new(&admin, &topics);
    if topics.iter().any(|topic| sampled.shows(*topic)) {
        streams.push(samples(sampled).boxed());
    }
    let events = stream::select_all(streams);
    let alive = KeepAlive::new().interval(HEARTBEAT);
    Ok(Sse::new(held(events, permit))
        .keep_alive(alive)
        .into_response())
}

/// The topics of a query; those of models if it names none.
fn topics_of(query: &str) -> Result<Vec<Topic>, Problem> {
    let refuse = |message: String| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_topics", message).at("topics")
    };
    if query.is_empty() {
        return Ok(vec![Topic::Models]);
    }
    let Some(names) = query
        .strip_prefix("topics=")
        .filter(|names| !names.contains('&'))
    else {
        return Err(refuse(
            "the only parameter is `topics`, as in `?topics=models,numbers`".into(),
        ));
    };
    let names = percent_encoding::percent_decode_str(names).decode_utf8_lossy();
    let topic = |name: &str| {
        let known = Topic::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, topic)| *topic).ok_or_else(|| {
            let known = Topic::NAMES.map(|(name, _)| name).join(", ");
            refuse(format!("`topics` are names with commas, of: {known}"))
        })
    };
    names.split(',').map(topic).collect()
}

fn too_many() -> Problem {
    let message = "as many readers as there may be follow the events already; close one of them";
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too_many_event_streams",
        message,
    )
    .with_header("retry-after", "5")
}

/// A stream that gives its place back when it is dropped.
fn held(
    events: impl Stream<Item = Told>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Told> {
    events.map(move |event| {
        let _ = &permit;
        event
    })
}

/// States of all models, and their changes.
fn models(admin: &Admin) -> impl Stream<Item = Told> + use<> {
    let events = admin.models.listen();
    let now: Vec<Told> = admin.models.statuses().iter().map(present).collect();
    let later = following(events, shown);
    let pulls = admin.library.as_ref().map(|library| library.listen());
    let pulls = stream::iter(pulls).flat_map(of_pulls);
    stream::iter(now).chain(stream::select(later, pulls))
}

/// Events of pulls from now on.
fn of_pulls(events: Receiver<PullStatus>) -> impl Stream<Item = Told> {
    following(events, |pull| event("model.pull", &json!(pull)))
}

/// Events from now on. A reader that is too slow is told how many it missed.
fn following<T: Clone + Send + 'static>(
    events: Receiver<T>,
    shown: impl Fn(&T) -> Event + Copy,
) -> impl Stream<Item = Told> {
    stream::unfold(events, move |mut events| async move {
        let event = match events.recv().await {
            Ok(told) => shown(&told),
            Err(RecvError::Lagged(missed)) => event("missed", &json!({"events": missed})),
            Err(RecvError::Closed) => return None,
        };
        Some((Ok(event), events))
    })
}

fn present(model: &ModelStatus) -> Told {
    let state = json!({
        "model": model.listing.name,
        "state": model.state.name(),
        "error": model.last_error,
    });
    Ok(event("model.state", &state))
}

fn shown(told: &ModelEvent) -> Event {
    let Some(progress) = &told.progress else {
        let state = json!({
            "model": told.model,
            "state": told.state.name(),
            "error": told.error,
            "at_ms": told.at_ms,
        });
        return event("model.state", &state);
    };
    let mut data = json!(progress);
    data["model"] = json!(told.model);
    data["state"] = json!(told.state.name());
    data["at_ms"] = json!(told.at_ms);
    event("model.progress", &data)
}

/// Entries of the audit log from now on.
fn entries(entries: Receiver<Arc<AuditEntry>>) -> impl Stream<Item = Told> {
    following(entries, |entry| {
        event("audit.entry", &Value::Object(AuditEntry::clone(entry)))
    })
}

/// Collections when they have changed.
fn collections(admin: &Admin) -> impl Stream<Item = Told> + use<> {
    let documents = Arc::clone(&admin.documents);
    let mut ticks = interval(EVENT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let known = Value::Null;
    stream::unfold(
        (documents, ticks, known),
        |(documents, mut ticks, known)| async move {
            loop {
                ticks.tick().await;
                // What cannot be read now is told of when it can be read again.
                let Ok(now) = documents.watched().await else {
                    continue;
                };
                if now != known {
                    let told = event("collections", &now);
                    return Some((Ok(told), (documents, ticks, now)));
                }
            }
        },
    )
}

/// Limits of keys: at first all, then those of which one has changed.
fn quotas_of_keys(admin: &Arc<Admin>) -> impl Stream<Item = Told> + use<> {
    let mut ticks = interval(EVENT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let known: Option<Arc<BTreeMap<String, Value>>> = None;
    stream::unfold(
        (Arc::clone(admin), ticks, known),
        |(admin, mut ticks, known)| async move {
            loop {
                ticks.tick().await;
                let now = quotas::watched(&admin).await;
                let before = |id: &String| known.as_ref().and_then(|known| known.get(id));
                let changed = now.iter().filter(|(id, row)| before(id) != Some(row));
                let changed: Vec<&Value> = changed.map(|(_, row)| row).collect();
                if known.is_some() && changed.is_empty() {
                    continue;
                }
                let told = event("quotas", &json!({"object": "list", "data": changed}));
                return Some((Ok(told), (admin, ticks, Some(now))));
            }
        },
    )
}

/// Topics that are looked at once an interval. What has not changed is not told again.
struct Sampled {
    admin: Arc<Admin>,
    topics: Vec<Topic>,
    ticks: Interval,
    /// Breakers of loaded models that are not closed.
    circuits: BTreeMap<String, &'static str>,
    /// Last data of each event, by its name.
    told: BTreeMap<&'static str, Value>,
    /// Keys as of the last event.
    keys: Option<Vec<Standing>>,
    ready: VecDeque<Event>,
}

impl Sampled {
    fn new(admin: &Arc<Admin>, topics: &[Topic]) -> Self {
        let mut ticks = interval(EVENT_INTERVAL);
        // A reader that was slow gets no burst.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            admin: Arc::clone(admin),
            topics: topics.to_vec(),
            ticks,
            circuits: BTreeMap::new(),
            told: BTreeMap::new(),
            keys: None,
            ready: VecDeque::new(),
        }
    }

    fn shows(&self, topic: Topic) -> bool {
        let sampled = [
            Topic::Models,
            Topic::Numbers,
            Topic::Requests,
            Topic::Plugins,
            Topic::Aliases,
            Topic::Loras,
            Topic::Keys,
        ];
        sampled.contains(&topic) && self.topics.contains(&topic)
    }

    /// Breakers that opened or closed since the last look.
    fn look_at_circuits(&mut self) {
        let now = circuits(&self.admin);
        let before = std::mem::take(&mut self.circuits);
        let closed = before.keys().filter(|model| !now.contains_key(*model));
        let closed = closed.map(|model| (model.as_str(), "closed"));
        let changed = now.iter().map(|(model, state)| (model.as_str(), *state));
        let changed = changed.filter(|(model, state)| before.get(*model) != Some(state));
        let told = closed.chain(changed).map(|(model, state)| {
            event("model.circuit", &json!({"model": model, "circuit": state}))
        });
        self.ready.extend(told);
        self.circuits = now;
    }

    /// Tell of something if it is not as it was told last.
    fn tell(&mut self, name: &'static str, now: Value) {
        if self.told.get(name) != Some(&now) {
            self.ready.push_back(event(name, &now));
            self.told.insert(name, now);
        }
    }

    /// Keys, whose rows are made if one has changed: there may be thousands.
    fn look_at_keys(&mut self) {
        let now = keys::standing(&self.admin);
        if self.keys.as_ref() != Some(&now) {
            let rows = keys::rows(now.iter().map(|(key, ..)| key));
            self.ready.push_back(event("keys", &rows));
            self.keys = Some(now);
        }
    }

    fn look(&mut self) {
        if self.shows(Topic::Models) {
            self.look_at_circuits();
        }
        if self.shows(Topic::Numbers) {
            self.ready
                .push_back(event("numbers", &numbers(&self.admin)));
        }
        if self.shows(Topic::Requests) {
            self.tell("requests", watch::requests(&*self.admin.watch));
        }
        if self.shows(Topic::Plugins) {
            self.tell("plugins", self.admin.live.numbers());
        }
        if self.shows(Topic::Aliases) {
            self.tell("aliases", aliases::all(&self.admin));
        }
        if self.shows(Topic::Loras) {
            self.tell("loras", loras::all(&self.admin));
        }
        if self.shows(Topic::Keys) {
            self.look_at_keys();
        }
    }
}

fn samples(sampled: Sampled) -> impl Stream<Item = Told> {
    stream::unfold(sampled, |mut sampled| async move {
        loop {
            if let Some(event) = sampled.ready.pop_front() {
                return Some((Ok(event), sampled));
            }
            sampled.ticks.tick().await;
            sampled.look();
        }
    })
}

/// Breakers of loaded models that are not closed.
fn circuits(admin: &Admin) -> BTreeMap<String, &'static str> {
    let statuses = admin.models.statuses().into_iter();
    let states = statuses.filter_map(|model| {
        let state = model.loaded.as_ref()?.load().circuit.name();
        Some((model.listing.name.clone(), state))
    });
    states.filter(|(_, state)| *state != "closed").collect()
}

/// Figures of the requests, and of each loaded model.
fn numbers(admin: &Admin) -> Value {
    let mut numbers = watch::figures(&*admin.watch);
    let statuses = admin.models.statuses();
    let loaded = statuses.iter().filter_map(|model| {
        let load = model.loaded.as_ref()?.load();
        Some(json!({
            "model": model.listing.name,
            "in_flight": model.in_flight,
            "uses": model.uses,
            "running": load.running,
            "waiting": load.waiting,
            "kv_blocks_used": load.kv_blocks_used,
            "kv_blocks_total": load.kv_blocks_total,
        }))
    });
    numbers["models"] = loaded.collect();
    numbers
}

fn event(name: &str, data: &Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_topics_that_there_are() {
        assert_eq!(topics_of("").expect("topics"), [Topic::Models]);
        let all = topics_of(
            "topics=models,numbers,requests,plugins,aliases,loras,keys,quotas,collections,audit",
        );
        assert_eq!(all.expect("topics").len(), 10);
        let encoded = topics_of("topics=numbers%2Caudit").expect("topics");
        assert_eq!(encoded, [Topic::Numbers, Topic::Audit]);
        for wrong in ["topics=", "topics=all", "topic=models", "topics=models&x=1"] {
            assert_eq!(topics_of(wrong).expect_err(wrong).code, "invalid_topics");
        }
    }
}
