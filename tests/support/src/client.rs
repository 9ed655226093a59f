//! A small HTTP/1.1 client that hides nothing: one connection for each request.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::PATIENCE;

/// A request, with whatever is wrong with it.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The address that it is sent from; `None` leaves the choice to the system.
    pub source: Option<IpAddr>,
}

/// A connection to `address` that comes from `source`.
pub fn connect_from(source: Option<IpAddr>, address: &str) -> io::Result<TcpStream> {
    let Some(source) = source else {
        return TcpStream::connect(address);
    };
    let target: SocketAddr = address.parse().map_err(io::Error::other)?;
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect(&target.into())?;
    Ok(socket.into())
}

impl Request {
    pub fn get(path: &str) -> Self {
        Self {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            source: None,
        }
    }

    pub fn post(path: &str, body: &Value) -> Self {
        Self::raw(path, body.to_string().as_bytes())
    }

    /// A body that may be anything, said to be JSON.
    pub fn raw(path: &str, body: &[u8]) -> Self {
        Self {
            method: "POST".to_owned(),
            body: body.to_vec(),
            ..Self::get(path)
        }
        .header("content-type", "application/json")
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn from(mut self, source: IpAddr) -> Self {
        self.source = Some(source);
        self
    }

    pub fn method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    /// Send it and leave the answer to be read.
    pub fn begin(&self, address: &str) -> Stream {
        let mut stream = connect_from(self.source, address).expect("connect");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("set a timeout");
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let has = |name: &str| self.headers.iter().any(|(known, _)| known == name);
        if !has("host") {
            head.push_str(&format!("host: {address}\r\n"));
        }
        let told = self.method != "GET" || !self.body.is_empty();
        if told && !has("content-length") && !has("transfer-encoding") {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("connection: close\r\n");
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        // A server that has heard enough may close while we still write.
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&self.body);
        Stream {
            reader: BufReader::new(stream),
        }
    }

    pub fn send(&self, address: &str) -> Response {
        self.begin(address).response()
    }
}

/// An answer that is being read.
pub struct Stream {
    reader: BufReader<TcpStream>,
}

impl Stream {
    pub fn head(&mut self) -> Head {
        let status_line = self.line();
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("no status in {status_line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            match line.split_once(':') {
                Some((name, value)) => {
                    headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                None => return Head { status, headers },
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("read a line");
        line.trim_end().to_owned()
    }

    /// The next chunk of a chunked body; `None` after the last, which must be there.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = self.line();
        let size = usize::from_str_radix(&size, 16)
            .unwrap_or_else(|_| panic!("the body broke off: {size:?} is no chunk size"));
        let mut chunk = vec![0; size];
        self.reader.read_exact(&mut chunk).expect("read a chunk");
        self.line();
        (size > 0).then_some(chunk)
    }

    pub fn response(self) -> Response {
        self.timed_response(|| ())
    }

    /// The answer; `first` is called when the first piece of its body has come.
    pub fn timed_response(mut self, first: impl FnOnce()) -> Response {
        let head = self.head();
        let mut body = Vec::new();
        if head.header("transfer-encoding") == Some("chunked") {
            body.extend(self.chunk().unwrap_or_default());
            first();
            if !body.is_empty() {
                while let Some(chunk) = self.chunk() {
                    body.extend(chunk);
                }
            }
        } else {
            // The server may reset a connection on which more was sent than it read.
            let _ = self.reader.read_to_end(&mut body);
            first();
        }
        Response { head, body }
    }
}

#[derive(Debug, Clone)]
pub struct Head {
    pub status: u16,
    pub headers: Vec<(String, String)>,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Clone)]
pub struct Response {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head.status
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a body in UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// The body of a successful answer.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status(), 200, "{}", self.text());
        self.json()
    }

    /// The events of a stream, `[DONE]` checked and left out.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status(), 200, "{}", self.text());
        let mut events = events(&self.text());
        assert_eq!(
            events.pop().as_ref().and_then(Value::as_str),
            Some("[DONE]")
        );
        events
    }
}

/// The `data:` of a stream; `[DONE]` becomes a string.
pub fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| match data {
        "[DONE]" => Value::from("[DONE]"),
        json => serde_json::from_str(json).expect("an event in JSON"),
    })
    .collect()
}
