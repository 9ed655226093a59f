//! Stop strings in text that comes in pieces: what could become one is held back, what cannot is
//! passed on, and nothing that was passed on is ever taken back.

/// Finds the first stop string to be completed, in time linear in the text. Where several are
/// completed by the same character, the longest counts.
///
/// An Aho-Corasick automaton: the depth of its state is the length of the longest end of the text
/// that could begin a stop string, which is exactly what has to be held back.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    nodes: Vec<Node>,
    state: usize,
    held: String,
    /// The stop string that was completed.
    stopped: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    next: Vec<(u8, usize)>,
    fail: usize,
    depth: usize,
    /// Length of the longest stop string that the text ends with here; 0 if there is none.
    matched: usize,
}

impl StopMatcher {
    /// A matcher for these strings; empty ones match nothing.
    pub fn new<'a>(stops: impl IntoIterator<Item = &'a str>) -> Self {
        let mut nodes = vec![Node::default()];
        for stop in stops {
            let mut at = 0;
            for byte in stop.bytes() {
                at = match step(&nodes[at], byte) {
                    Some(next) => next,
                    None => {
                        let depth = nodes[at].depth + 1;
                        nodes.push(Node {
                            depth,
                            ..Node::default()
                        });
                        let next = nodes.len() - 1;
                        nodes[at].next.push((byte, next));
                        next
                    }
                };
            }
            nodes[at].matched = stop.len();
        }
        link(&mut nodes);
        Self {
            nodes,
            state: 0,
            held: String::new(),
            stopped: None,
        }
    }

    /// Take more text and append to `out` what is certain. Returns whether a stop string is
    /// complete; it and what follows it are dropped.
    pub fn push(&mut self, text: &str, out: &mut String) -> bool {
        if self.stopped.is_some() {
            return true;
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (at, byte) in text.bytes().enumerate() {
            self.advance(byte);
            let matched = self.nodes[self.state].matched;
            if matched > 0 {
                let start = before + at + 1 - matched;
                out.push_str(self.held.get(..start).unwrap_or_default());
                let stop = self.held.get(start..start + matched);
                self.stopped = Some(stop.unwrap_or_default().to_owned());
                self.held.clear();
                return true;
            }
        }
        let certain = self.held.len() - self.nodes[self.state].depth;
        out.extend(self.held.drain(..certain));
        false
    }

    /// The text has ended: append what was held back.
    pub fn finish(&mut self, out: &mut String) {
        out.push_str(&self.held);
        self.held.clear();
        self.state = 0;
    }

    /// The stop string that was completed, if one was.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Bytes that are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn advance(&mut self, byte: u8) {
        loop {
            if let Some(next) = step(&self.nodes[self.state], byte) {
                self.state = next;
                return;
            }
            if self.state == 0 {
                return;
            }
            self.state = self.nodes[self.state].fail;
        }
    }
}

fn step(node: &Node, byte: u8) -> Option<usize> {
    node.next
        .iter()
        .find(|(own, _)| *own == byte)
        .map(|&(_, next)| next)
}

/// Link every node to that of its longest proper end, breadth first.
fn link(nodes: &mut [Node]) {
    let mut queue: std::collections::VecDeque<usize> =
        nodes[0].next.iter().map(|&(_, next)| next).collect();
    while let Some(at) = queue.pop_front() {
        for (byte, child) in nodes[at].next.clone() {
            let mut end = nodes[at].fail;
            let fail = loop {
                match step(&nodes[end], byte) {
                    Some(next) => break next,
                    None if end == 0 => break 0,
                    None => end = nodes[end].fail,
                }
            };
            nodes[child].fail = fail;
            if nodes[child].matched == 0 {
                nodes[child].matched = nodes[fail].matched;
            }
            queue.push_back(child);
        }
    }
}

#[cfg(test)]
mod tests;
