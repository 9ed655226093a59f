//! Tools: what they declare, and what a call of one comes to.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use mortise_plugin::{
    ComponentTools, Fault, HttpGrant, LoadError, Outbound, PluginError, ToolAnswer, ToolCaller,
};

use crate::guests::{binding, context, fault_of, shared};

async fn call(
    tools: &ComponentTools,
    name: &str,
    arguments: &str,
) -> Result<ToolAnswer, PluginError> {
    let caller = ToolCaller {
        call_id: "call_1".to_owned(),
        model: "demo".to_owned(),
        subject: "someone".to_owned(),
        tenant: Some("acme".to_owned()),
    };
    tools.call(&context(), &caller, name, arguments).await
}

#[tokio::test]
async fn a_call_gives_a_result_a_refusal_or_a_fault() {
    let tools = shared().tools(binding()).await;
    let names: Vec<&str> = tools
        .declarations()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(names, ["does", "refuses", "fails", "tells", "asks"]);
    let said = call(&tools, "does", r#"{"text":"a"}"#).await.unwrap();
    assert_eq!(said, ToolAnswer::Result("a".to_owned()));
    let said = call(&tools, "refuses", r#"{"text":"b"}"#).await.unwrap();
    assert_eq!(said, ToolAnswer::Refused("b".to_owned()));
    let long = format!(r#"{{"text":"{}"}}"#, "é".repeat(2000));
    let ToolAnswer::Refused(said) = call(&tools, "refuses", &long).await.unwrap() else {
        panic!("not refused");
    };
    assert_eq!(said, "é".repeat(512), "a refusal is cut at 1 KiB");
    let error = call(&tools, "fails", r#"{"text":"c"}"#).await.unwrap_err();
    assert_eq!(
        fault_of(error, "tool.call"),
        Fault::Internal("c".to_owned())
    );
}

#[tokio::test]
async fn a_tool_is_told_for_whom_it_is_called() {
    let tools = shared().tools(binding()).await;
    let said = call(&tools, "tells", r#"{"text":""}"#).await.unwrap();
    let ToolAnswer::Result(said) = said else {
        panic!("refused");
    };
    for part in ["request-1", "call_1", "demo", "someone", "acme"] {
        assert!(said.contains(part), "{said}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_follow_the_schema_never_reach_the_plugin() {
    let tools = shared().tools(binding()).await;
    for (name, arguments, part) in [
        ("does", "{", "not JSON"),
        ("does", "", "\"text\" is a required property"),
        ("does", "[]", "object"),
        (
            "does",
            r#"{"text":5}"#,
            "/text: want string, but got number",
        ),
        (
            "does",
            r#"{"text":"loop","more":1}"#,
            "/more: the name is unknown; known: `text`",
        ),
        ("ghost", "{}", "no tool `ghost`"),
    ] {
        match call(&tools, name, arguments).await.unwrap() {
            ToolAnswer::Refused(said) => assert!(said.contains(part), "{said}"),
            ToolAnswer::Result(said) => panic!("{arguments} gave {said}"),
        }
    }
    // A deep nest is refused by the parser and does not reach the thread's stack.
    let deep = "[".repeat(100_000);
    let said = call(&tools, "does", &deep).await.unwrap();
    assert!(matches!(said, ToolAnswer::Refused(_)));
}

#[tokio::test]
async fn declarations_that_make_no_sense_keep_the_plugin_from_serving() {
    for (setting, part) in [
        ("none", "declared 0 tools"),
        ("nameless", "named a tool"),
        ("twice", "`does` twice"),
    ] {
        let mut binding = binding();
        binding.settings = format!(r#"{{"tools":"{setting}"}}"#);
        let fixture = shared();
        let bound = ComponentTools::bind(&fixture.host, &fixture.component, binding).await;
        let Err(LoadError::Prepare { source, .. }) = bound.map(drop) else {
            panic!("{setting} is not refused");
        };
        assert_eq!(source.function, "tool.describe");
        assert!(source.to_string().contains(part), "{source}");
    }
}

#[tokio::test]
async fn calls_run_side_by_side_on_instances_of_their_own() {
    let tools = shared().tools(binding()).await;
    let (one, two) = tokio::join!(
        call(&tools, "does", r#"{"text":"spin:1"}"#),
        call(&tools, "does", r#"{"text":"panic"}"#),
    );
    assert_eq!(one.unwrap(), ToolAnswer::Result("spin:1".to_owned()));
    let error = two.unwrap_err();
    assert!(matches!(error.fault, Fault::Trap(_)), "{error}");
}

#[tokio::test]
async fn without_listed_origins_nothing_is_asked() {
    let tools = shared().tools(binding()).await;
    let arguments = r#"{"text":"http://127.0.0.1:1/"}"#;
    let ToolAnswer::Result(said) = call(&tools, "asks", arguments).await.unwrap() else {
        panic!("refused");
    };
    assert!(
        said.contains("Denied") && said.contains("127.0.0.1"),
        "{said}"
    );
}

/// A server that answers every request with `ok`; its origin.
fn answering() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 1024];
            let read = stream.read(&mut head).unwrap();
            let head = String::from_utf8_lossy(&head[..read]);
            let answer = match head.contains("x-guest: yes") {
                true => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
                false => "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

async fn asks(tools: &ComponentTools, text: &str) -> String {
    let arguments = format!(r#"{{"text":"{text}"}}"#);
    match call(tools, "asks", &arguments).await.unwrap() {
        ToolAnswer::Result(said) => said,
        ToolAnswer::Refused(said) => panic!("refused: {said}"),
    }
}

#[tokio::test]
async fn a_listed_origin_answers_and_others_do_not() {
    let origin = answering();
    let mut binding = binding();
    binding.http = Outbound::new(HttpGrant {
        origins: vec![origin.parse().unwrap()],
        ..HttpGrant::default()
    });
    let tools = shared().tools(binding).await;
    assert_eq!(asks(&tools, &format!("GET {origin}/x")).await, "200 ok");
    let other = asks(&tools, "GET http://127.0.0.1:1/").await;
    assert!(other.contains("Denied"), "{other}");
    let wrong = asks(&tools, &format!("CONNECT {origin}/")).await;
    assert!(wrong.contains("Invalid"), "{wrong}");
}

#[tokio::test]
async fn a_wait_for_an_answer_is_no_running_time_and_still_has_an_end() {
    // It is connected to and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", silent.local_addr().unwrap());
    let mut binding = binding();
    binding.http = Outbound::new(HttpGrant {
        origins: vec![origin.parse().unwrap()],
        timeout: std::time::Duration::from_secs(3600),
        ..HttpGrant::default()
    });
    // 20 ms of running, hence 200 by the clock: then the request ends, and the guest may say so.
    binding.limits.deadlines.tool_ms = 20;
    let tools = shared().tools(binding).await;
    let arguments = format!(r#"{{"text":"GET {origin}/"}}"#);
    match call(&tools, "asks", &arguments).await {
        Ok(ToolAnswer::Result(said)) => assert_eq!(said, "Error::Timeout"),
        // A busy machine may leave it no time to say anything.
        Err(error) => assert_eq!(error.fault, Fault::Deadline { deadline_ms: 20 }),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_of_one_call_are_counted() {
    let origin = answering();
    let mut binding = binding();
    binding.http = Outbound::new(HttpGrant {
        origins: vec![origin.parse().unwrap()],
        requests_per_call: 0,
        ..HttpGrant::default()
    });
    let tools = shared().tools(binding).await;
    let spent = asks(&tools, &format!("GET {origin}/")).await;
    assert!(spent.contains("Spent"), "{spent}");
}
