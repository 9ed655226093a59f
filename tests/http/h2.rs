//! HTTP/2 without TLS: a client that knows beforehand that the server speaks it.

use std::time::Duration;

use http::{Method, Response};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::Server;
use crate::support::client::events;

const CHAT: &str = "/v1/chat/completions";

/// Time after which a test that hangs is given up.
const LIMIT: Duration = Duration::from_secs(60);

/// One connection.
struct Client {
    requests: h2::client::SendRequest<Bytes>,
    address: String,
}

impl Client {
    async fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await.expect("connect");
        let handshake = h2::client::handshake(stream).await;
        let (requests, connection) = handshake.expect("the server speaks HTTP/2");
        tokio::spawn(connection);
        Self {
            requests,
            address: server.address().to_owned(),
        }
    }

    /// Send a request; the head of the answer, whose body is still to come.
    async fn begin(
        &mut self,
        path: &str,
        body: Option<&Value>,
        headers: &[(String, String)],
    ) -> Response<h2::RecvStream> {
        let method = if body.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(()).expect("a request");
        let mut requests = self.requests.clone().ready().await.expect("ready");
        let sent = requests.send_request(request, body.is_none());
        let (answer, mut upload) = sent.expect("sent");
        if let Some(body) = body {
            let bytes = Bytes::from(body.to_string());
            upload.send_data(bytes, true).expect("sent");
        }
        answer.await.expect("an answer")
    }

    /// Status and body of an answer.
    async fn ask(&mut self, path: &str, body: Option<&Value>) -> (u16, String) {
        read(self.begin(path, body, &[]).await).await
    }
}

async fn read(answer: Response<h2::RecvStream>) -> (u16, String) {
    let (head, mut body) = answer.into_parts();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("data");
        let window = body.flow_control().release_capacity(data.len());
        window.expect("released");
        text.extend_from_slice(&data);
    }
    (
        head.status.as_u16(),
        String::from_utf8(text).expect("UTF-8"),
    )
}

fn question(text: &str, stream: bool) -> Value {
    json!({
        "model": "mortise-demo", "messages": [{"role": "user", "content": text}],
        "max_tokens": 30, "temperature": 0, "stream": stream,
    })
}

/// Answer to the same question over HTTP/1.
fn over_http1(server: &Server, text: &str) -> String {
    let answer = server.post(CHAT, &question(text, false)).ok();
    let content = answer["choices"][0]["message"]["content"].as_str();
    content.expect("content").to_owned()
}

fn streamed(text: &str) -> String {
    let pieces = events(text).into_iter().filter_map(|event| {
        let content = event["choices"][0]["delta"]["content"].as_str()?;
        Some(content.to_owned())
    });
    pieces.collect()
}

/// Run on a runtime, for so long at most.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    let limited = async { tokio::time::timeout(LIMIT, test).await };
    let ended = runtime.expect("a runtime").block_on(limited);
    ended.expect("it ends");
}

#[test]
fn many_answers_share_a_connection_and_are_those_of_http_1() {
    let server = Server::start(&[]);
    let texts = ["What is mortise?", "Hello", "Tell me more.", "Why?"];
    let expected = texts.map(|text| over_http1(&server, text));
    run(async {
        let mut client = Client::connect(&server).await;
        assert_eq!(client.ask("/health", None).await.0, 200);
        let mut begun = Vec::new();
        for text in texts {
            let body = question(text, true);
            begun.push(client.begin(CHAT, Some(&body), &[]).await);
        }
        // All heads are there before any body is read; the last is read first.
        for (answer, expected) in begun.into_iter().zip(expected).rev() {
            let (status, body) = read(answer).await;
            assert_eq!(status, 200, "{body}");
            assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
            assert_eq!(streamed(&body), expected);
        }
    });
}

#[test]
fn errors_come_as_over_http_1() {
    let server = Server::start(&[]);
    run(async {
        let mut client = Client::connect(&server).await;
        let nonsense = json!({"model": "mortise-demo", "messages": []});
        let (status, body) = client.ask(CHAT, Some(&nonsense)).await;
        let same = server.post(CHAT, &nonsense);
        assert_eq!((status, body), (same.status(), same.text()));
        let (status, _) = client.ask("/nowhere", None).await;
        assert_eq!(status, 404);
        // Beyond the limit of headers, and below what the connection itself refuses.
        let many: Vec<(String, String)> = (0..150)
            .map(|index| (format!("x-{index}"), "y".to_owned()))
            .collect();
        let (status, body) = read(client.begin("/health", None, &many).await).await;
        assert_eq!(status, 431, "{body}");
        let error: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(error["error"]["code"], "headers_too_large");
        assert_eq!(client.ask("/health", None).await.0, 200, "it goes on");
    });
}

#[test]
fn a_stream_that_is_reset_ends_its_answer_and_no_other() {
    let script = "default = \"again \"\nrepeat = 10000\ntoken_delay_ms = 1\n";
    let server = Server::scripted(script, "");
    let body = json!({
        "model": "scripted", "messages": [{"role": "user", "content": "Hi"}],
        "stream": true, "max_tokens": 30_000,
    });
    run(async {
        let mut client = Client::connect(&server).await;
        let answers = [(); 2];
        let mut streams = Vec::new();
        for () in answers {
            let mut answer = client.begin(CHAT, Some(&body), &[]).await.into_body();
            answer.data().await.expect("a beginning").expect("data");
            streams.push(answer);
        }
        let running = async |client: &mut Client| {
            let (_, page) = client.ask("/metrics", None).await;
            let line = page
                .lines()
                .find(|line| line.starts_with("mortise_batch_size_decode{"));
            let count = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            count.expect("the gauge")
        };
        assert_eq!(running(&mut client).await, 2.0);
        // Dropped, a stream is reset.
        streams.pop();
        while running(&mut client).await != 1.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let next = streams[0].data().await.expect("more").expect("data");
        assert!(!next.is_empty(), "the other goes on");
    });
}
