//! Export of spans to a collector, on a task of its own.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, SpanData};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, sleep_until, timeout};

use crate::answer::TracedOutcome;
use crate::client::{CollectorClient, CollectorError};
use crate::config::{Encoding, TraceConfig, TraceSampling};
use crate::encode;
use crate::limits::{BATCH_WAIT, MAX_ATTEMPTS, MAX_ATTRIBUTES, MAX_BATCH_SPANS, MAX_RETRY_PAUSE};
use crate::queue::{Enqueue, SpanCounters, SpanCounts};
use crate::span::record_with;

/// First pause before a batch is sent again; it doubles.
const BACKOFF: Duration = Duration::from_millis(500);
/// Events and links of a span; none is made today.
const FURTHER: u32 = 4;

/// Sends spans to the collector.
pub struct Exporter {
    client: CollectorClient,
    encoding: Encoding,
    resource: ResourceAttributesWithSchema,
    queue: Mutex<Receiver<SpanData>>,
    counters: Arc<SpanCounters>,
    /// Becomes true when nothing more will come, and what waits is sent once.
    ending: watch::Sender<bool>,
    /// Becomes true when all has been sent.
    ended: watch::Sender<bool>,
    /// Keeps the maker of spans.
    _provider: SdkTracerProvider,
}

impl Exporter {
    /// Record spans from now on. They are sent while [`Self::run`] runs.
    ///
    /// # Errors
    /// When the settings name no collector that could be asked.
    pub fn start(config: &TraceConfig) -> Result<Self, CollectorError> {
        let client = CollectorClient::new(config)?;
        let (sender, queue) = mpsc::channel(config.queue.max(1));
        let counters = Arc::<SpanCounters>::default();
        let resource = Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_service_name(config.service.clone())
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string()),
            ])
            .build();
        // All that the crate would read from the environment is given.
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler(config.sampling))
            .with_max_attributes_per_span(MAX_ATTRIBUTES)
            .with_max_events_per_span(FURTHER)
            .with_max_links_per_span(FURTHER)
            .with_resource(resource.clone())
            .with_span_processor(Enqueue {
                sender,
                counters: Arc::clone(&counters),
            })
            .build();
        record_with(provider.tracer("mortise"));
        Ok(Self {
            client,
            encoding: config.encoding,
            resource: (&resource).into(),
            queue: Mutex::new(queue),
            counters,
            ending: watch::Sender::new(false),
            ended: watch::Sender::new(false),
            _provider: provider,
        })
    }

    /// Numbers of spans since the start.
    pub fn counts(&self) -> SpanCounts {
        self.counters.now()
    }

    /// Send spans until the server ends.
    pub async fn run(&self) {
        let mut queue = self.queue.lock().await;
        let mut ending = self.ending.subscribe();
        while !*ending.borrow() {
            let mut batch = Vec::new();
            tokio::select! {
                () = fill(&mut queue, &mut batch) => {}
                _ = ending.wait_for(|ending| *ending) => {}
            }
            if !batch.is_empty() {
                self.send(batch).await;
            }
        }
        loop {
            let mut batch = Vec::new();
            while batch.len() < MAX_BATCH_SPANS
                && let Ok(span) = queue.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                break;
            }
            self.send(batch).await;
        }
        self.ended.send_replace(true);
        // A task that must go on does not end before the process.
        std::future::pending::<()>().await;
    }

    /// Send what waits, once, for as long as `limit`.
    pub async fn flush(&self, limit: Duration) {
        self.ending.send_replace(true);
        let mut ended = self.ended.subscribe();
        if timeout(limit, ended.wait_for(|ended| *ended))
            .await
            .is_err()
        {
            tracing::warn!("the collector of traces did not take the last spans in time");
        }
    }

    /// Send a batch, again after a while where that may help.
    async fn send(&self, batch: Vec<SpanData>) {
        let spans = batch.len() as u64;
        let message = match encode::message(self.encoding, batch, &self.resource) {
            Ok(message) => message,
            Err(error) => return self.give_up(spans, &error.to_string()),
        };
        let mut ending = self.ending.subscribe();
        for attempt in 1.. {
            let (why, asked) = match self.client.post(message.clone()).await {
                TracedOutcome::Taken(body) => {
                    let rejected = encode::rejected(self.encoding, &body).min(spans);
                    self.counters.exported.fetch_add(spans - rejected, Relaxed);
                    self.counters.failed.fetch_add(rejected, Relaxed);
                    return;
                }
                TracedOutcome::Refused(why) => return self.give_up(spans, &why),
                TracedOutcome::Later(why, asked) => (why, asked),
            };
            if attempt >= MAX_ATTEMPTS || *ending.borrow() {
                return self.give_up(spans, &why);
            }
            let pause = asked
                .unwrap_or_default()
                .max(BACKOFF * 2_u32.pow(attempt - 1));
            tokio::select! {
                () = sleep(pause.min(MAX_RETRY_PAUSE)) => {}
                _ = ending.wait_for(|ending| *ending) => {}
            }
        }
    }

    fn give_up(&self, spans: u64, why: &str) {
        self.counters.failed.fetch_add(spans, Relaxed);
        tracing::warn!(spans, why, "the collector of traces did not take spans");
    }
}

/// Wait for spans, and for a moment for others to go with them. Those that came stay in the batch if nobody waits on.
async fn fill(queue: &mut Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    queue.recv_many(batch, MAX_BATCH_SPANS).await;
    let until = tokio::time::Instant::now() + BATCH_WAIT;
    while batch.len() < MAX_BATCH_SPANS {
        let room = MAX_BATCH_SPANS - batch.len();
        tokio::select! {
            _ = queue.recv_many(batch, room) => {}
            () = sleep_until(until) => break,
        }
    }
}

fn sampler(sampling: TraceSampling) -> Sampler {
    let ratio = match sampling.ratio {
        ratio if ratio >= 1.0 => Sampler::AlwaysOn,
        ratio => Sampler::TraceIdRatioBased(ratio),
    };
    match sampling.parent_based {
        true => Sampler::ParentBased(Box::new(ratio)),
        false => ratio,
    }
}
