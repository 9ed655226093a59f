//! Traces by gRPC: a collector that speaks HTTP/2 gets the same spans, and what it cannot take at first it gets again.
//! Exemplars, which lead from the buckets of the metrics to traces.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, Response};
use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;

use crate::answers::{CHAT, chat};
use crate::support::client::Request;
use crate::support::{Server, until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const UNSAMPLED: &str = "5bf92f3577b34da6a3ce929d0e0e4736";

/// A call as it arrived.
#[derive(Debug, Clone)]
struct Call {
    path: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A collector that is not available for the first call, and takes all others.
struct Collector {
    address: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("an address").to_string();
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let kept = Arc::clone(&calls);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async move {
                listener.set_nonblocking(true).expect("set");
                let listener = tokio::net::TcpListener::from_std(listener).expect("listener");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&kept)));
                }
            });
        });
        Self { address, calls }
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("lock").clone()
    }
}

async fn serve(stream: tokio::net::TcpStream, calls: Arc<Mutex<Vec<Call>>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let calls = Arc::clone(&calls);
        tokio::spawn(async move {
            let (head, mut sent) = request.into_parts();
            let mut body = Vec::new();
            while let Some(Ok(data)) = sent.data().await {
                let _ = sent.flow_control().release_capacity(data.len());
                body.extend_from_slice(&data);
            }
            let first = {
                let mut calls = calls.lock().expect("lock");
                calls.push(Call {
                    path: head.uri.path().to_owned(),
                    headers: head.headers,
                    body,
                });
                calls.len() == 1
            };
            let answer = Response::builder().header("content-type", "application/grpc");
            let mut status = HeaderMap::new();
            let code = if first { "14" } else { "0" };
            status.insert("grpc-status", HeaderValue::from_static(code));
            let mut stream = respond
                .send_response(answer.body(()).expect("a head"), false)
                .expect("sent");
            let _ = stream.send_data(Bytes::from_static(&[0; 5]), false);
            let _ = stream.send_trailers(status);
        });
    }
}

fn traced(trace: &str, flags: &str) -> Request {
    let parent = format!("00-{trace}-00f067aa0ba902b7-{flags}");
    Request::post(CHAT, &chat("Hi")).header("traceparent", &parent)
}

#[test]
fn feature_o6_grpc_reaches_the_collector_and_buckets_name_recorded_traces() {
    let collector = Collector::start();
    let own = format!(
        "[traces]\nendpoint = \"http://{}\"\nprotocol = \"grpc\"\nheaders = {{ x-key = \"k\" }}\n\
         [metrics]\ngen_ai_names = true\n",
        collector.address
    );
    let server = Server::scripted("default = \"a few words\"\n", &own);
    server.send(&traced(TRACE, "01")).ok();
    server.send(&traced(UNSAMPLED, "00")).ok();
    until("the spans are taken", || {
        server.metric("mortise_trace_spans_exported_total") > 0.0
    });
    let calls = collector.calls();
    assert!(calls.len() >= 2, "the first is sent again");
    assert_eq!(calls[0].body, calls[1].body);
    for call in &calls {
        assert_eq!(
            call.path,
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        );
        for (name, value) in [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("x-key", "k"),
        ] {
            assert_eq!(call.headers[name], value);
        }
        let (head, message) = call.body.split_at(5);
        let length = u32::try_from(message.len())
            .expect("a length")
            .to_be_bytes();
        assert_eq!(head, [&[0][..], &length].concat());
        let spans = ExportTraceServiceRequest::decode(message)
            .expect("OTLP")
            .resource_spans;
        assert!(!spans.is_empty());
    }
    exemplars(&server);
}

/// Buckets name the trace that is recorded, for scrapers that ask for OpenMetrics.
fn exemplars(server: &Server) {
    let scrape =
        Request::get("/metrics").header("accept", "application/openmetrics-text; version=1.0.0");
    let answer = server.send(&scrape);
    let kind = answer.header("content-type").expect("a type").to_owned();
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    let page = answer.text();
    assert!(page.ends_with("\n# EOF\n"), "{page}");
    let exemplar = format!(" # {{trace_id=\"{TRACE}\"}} ");
    for family in [
        "mortise_request_duration_seconds",
        "mortise_queue_time_seconds",
        "mortise_time_to_first_token_seconds",
        "mortise_latency_per_token_seconds",
        "mortise_answer_duration_seconds",
        "gen_ai_server_request_duration_seconds",
    ] {
        let of_family = |line: &&str| line.starts_with(&format!("{family}_bucket"));
        let mut buckets = page.lines().filter(of_family);
        assert!(
            buckets.any(|line| line.contains(&exemplar)),
            "{family}\n{page}"
        );
    }
    assert!(!page.contains(UNSAMPLED), "{page}");
    assert!(page.contains("# TYPE mortise_requests counter\n"), "{page}");
    let text = server.get("/metrics");
    let kind = text.header("content-type").expect("a type").to_owned();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    let text = text.text();
    assert!(
        !text.contains("trace_id") && !text.contains("EOF"),
        "{text}"
    );
    assert!(
        text.contains("# TYPE mortise_requests_total counter\n"),
        "{text}"
    );
}
