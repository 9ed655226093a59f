//! Places for connections, shared by address.
//!
//! While places are free, anybody may take them. When they run out, a new connection takes the place of one
//! that has no complete request: the one that has waited longest, of the address that has most of them. So a
//! peer that opens connections and says nothing displaces its own. A request whose answer is made, and is the same for
//! everybody, counts as none: a peer that asks for pages and does not read them displaces its own, too. An eighth of the places is kept for
//! addresses that have few, and a few more for health checks, so that those are answered when everything
//! else is taken by requests that are being worked on.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Places beyond the limit, for health checks only.
pub(crate) const HEALTH_PLACES: usize = 16;

/// Part of the places that one address cannot take, unless the operator says otherwise.
const KEPT_FOR_OTHERS: usize = 8;

/// File descriptors that are not for connections: models, plugins, requests of plugins, the log.
const OTHER_DESCRIPTORS: usize = 64;

/// Looks at a connection within the time that an answer for nobody in particular may take.
const LOOKS: u32 = 4;

/// Least time between two log lines about a lack of places.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionShares {
    /// Connections at once.
    pub places: usize,
    /// Connections of one address at once.
    pub by_address: usize,
}

impl ConnectionShares {
    /// `by_address` of 0 leaves an eighth to other addresses. Both are no more than the process may open.
    pub fn new(places: usize, by_address: usize) -> Self {
        let places = match descriptor_limit() {
            Some(limit) => {
                let most = limit.saturating_sub(OTHER_DESCRIPTORS + HEALTH_PLACES);
                places.min(most.max(1))
            }
            None => places,
        };
        let most = match by_address {
            0 => places - places / KEPT_FOR_OTHERS,
            most => most,
        };
        Self {
            places,
            by_address: most.min(places),
        }
    }
}

/// File descriptors that the process may have, where the system tells.
fn descriptor_limit() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Requests that the place of a connection admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionClass {
    /// All requests.
    Any,
    /// Health checks; other requests are told to come back.
    Health,
}

/// The connections of a listener.
#[derive(Debug)]
pub struct ConnectionTable {
    shares: ConnectionShares,
    state: Mutex<State>,
    evicted: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<u64, Entry>,
    by_address: HashMap<IpAddr, usize>,
    next: u64,
    noticed: Option<Instant>,
    /// Connections evicted or refused since the last notice.
    unnoticed: u64,
}

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    place: ConnectionClass,
    /// Time since which the connection has waited for a request, or for the rest of one.
    since: Instant,
    /// Requests that are not answered yet.
    requests: usize,
    /// Complete requests whose answers are being made, or are for callers that are known.
    complete: usize,
    /// Answers for nobody in particular that are being handed over, by their numbers, and since when.
    unclaimed: BTreeMap<u64, Instant>,
    /// Number that was given to the last answer in `unclaimed`.
    numbers: u64,
    end: Arc<Notify>,
}

impl Entry {
    /// True if the connection may be evicted for another one.
    fn is_waiting(&self) -> bool {
        self.complete == 0
    }

    /// A request is no longer at this stage.
    fn leave(&mut self, stage: ExchangeStage) {
        match stage {
            ExchangeStage::Arriving => {}
            ExchangeStage::Complete => self.complete = self.complete.saturating_sub(1),
            ExchangeStage::Unclaimed(number) => {
                self.unclaimed.remove(&number);
            }
        }
    }

    /// True if no request is in progress, and an answer for nobody in particular has been sent for at least `limit`.
    fn is_overdue(&self, limit: Duration) -> bool {
        let oldest = self.unclaimed.values().next();
        self.is_waiting() && oldest.is_some_and(|since| since.elapsed() >= limit)
    }
}

impl ConnectionTable {
    /// A table without connections.
    pub fn new(shares: ConnectionShares) -> Arc<Self> {
        Arc::new(Self {
            shares,
            state: Mutex::default(),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// A place for a connection of `peer`, if need be that of another. `None` if all are taken by requests
    /// that are being worked on.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Connection> {
        let address = network_of(peer);
        let mut state = self.lock();
        let own = state.by_address.get(&address).copied().unwrap_or(0);
        let has_share = own < self.shares.by_address;
        let place = if has_share && state.with_place(ConnectionClass::Any) < self.shares.places {
            ConnectionClass::Any
        } else if self.evict(
            &mut state,
            ConnectionClass::Any,
            (!has_share).then_some(address),
        ) {
            // Who has more than a share makes room among its own.
            ConnectionClass::Any
        } else if state.with_place(ConnectionClass::Health) < HEALTH_PLACES
            || self.evict(&mut state, ConnectionClass::Health, None)
        {
            ConnectionClass::Health
        } else {
            self.refused.fetch_add(1, Relaxed);
            self.notice(&mut state);
            return None;
        };
        let number = state.next;
        state.next += 1;
        let end = Arc::<Notify>::default();
        *state.by_address.entry(address).or_default() += 1;
        state.entries.insert(
            number,
            Entry {
                address,
                place,
                since: Instant::now(),
                requests: 0,
                complete: 0,
                unclaimed: BTreeMap::new(),
                numbers: 0,
                end: Arc::clone(&end),
            },
        );
        Some(Connection {
            table: Arc::clone(self),
            number,
            place,
            end,
        })
    }

    /// End all connections that have waited for a complete request for so long.
    pub(crate) fn end_waiting(&self, since: Duration) {
        let state = self.lock();
        let waiting = |entry: &&Entry| entry.is_waiting() && entry.since.elapsed() >= since;
        for entry in state.entries.values().filter(waiting) {
            entry.end.notify_one();
        }
    }

    /// Connections at present.
    pub(crate) fn open(&self) -> usize {
        self.lock().entries.len()
    }

    /// Connections that were ended to make room.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Connections for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// End a connection with a place of this kind, of `only` or of anybody. `false` if none may be ended.
    fn evict(&self, state: &mut State, place: ConnectionClass, only: Option<IpAddr>) -> bool {
        let victim = state.victim(place, only);
        let Some(end) = victim.and_then(|victim| state.remove(victim)) else {
            return false;
        };
        end.notify_one();
        self.evicted.fetch_add(1, Relaxed);
        self.notice(state);
        true
    }

    fn notice(&self, state: &mut State) {
        state.unnoticed += 1;
        let now = Instant::now();
        if state
            .noticed
            .is_some_and(|last| now.duration_since(last) < NOTICE_INTERVAL)
        {
            return;
        }
        state.noticed = Some(now);
        let connections = std::mem::take(&mut state.unnoticed);
        tracing::warn!(
            connections,
            places = self.shares.places,
            by_address = self.shares.by_address,
            "connections were ended to make room for others; see `server.max_connections`"
        );
    }

    fn update(&self, number: u64, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.lock().entries.get_mut(&number) {
            change(entry);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts are valid whatever a panic interrupted.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn with_place(&self, place: ConnectionClass) -> usize {
        let with = |entry: &&Entry| entry.place == place;
        self.entries.values().filter(with).count()
    }

    /// The connection to end: of the address with most connections that wait, or of `only`, the one that has
    /// waited longest.
    fn victim(&self, place: ConnectionClass, only: Option<IpAddr>) -> Option<u64> {
        let mut waiting: HashMap<IpAddr, (usize, Instant, u64)> = HashMap::new();
        for (number, entry) in &self.entries {
            let other = only.is_some_and(|only| only != entry.address);
            if !entry.is_waiting() || entry.place != place || other {
                continue;
            }
            let longest = waiting
                .entry(entry.address)
                .or_insert((0, entry.since, *number));
            longest.0 += 1;
            if (entry.since, *number) < (longest.1, longest.2) {
                (longest.1, longest.2) = (entry.since, *number);
            }
        }
        let most = waiting.into_values().max_by(|one, other| {
            one.0
                .cmp(&other.0)
                .then(other.1.cmp(&one.1))
                .then(other.2.cmp(&one.2))
        });
        most.map(|(_, _, number)| number)
    }

    fn remove(&mut self, number: u64) -> Option<Arc<Notify>> {
        let entry = self.entries.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&entry.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&entry.address);
            }
        }
        Some(entry.end)
    }
}

/// Address that connections count for: an IPv4 address, or the /64 network of an IPv6 address.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// A connection that has a place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    table: Arc<ConnectionTable>,
    number: u64,
    place: ConnectionClass,
    end: Arc<Notify>,
}

impl Connection {
    pub(crate) fn place(&self) -> ConnectionClass {
        self.place
    }

    /// Ready when the connection must end.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }

    /// Ready when an answer for nobody in particular has been handed over for longer than `limit` to a peer that has
    /// nothing else to wait for. A peer that reads a byte now and then stalls no write, and ends nothing.
    pub(crate) async fn overdue(&self, limit: Duration) {
        let pause = (limit / LOOKS).max(Duration::from_millis(1));
        loop {
            tokio::time::sleep(pause).await;
            let state = self.table.lock();
            let entry = state.entries.get(&self.number);
            if entry.is_some_and(|entry| entry.is_overdue(limit)) {
                return;
            }
        }
    }

    /// Whether a request of the connection is not answered yet.
    pub(crate) fn is_in_request(&self) -> bool {
        let state = self.table.lock();
        let entry = state.entries.get(&self.number);
        entry.is_some_and(|entry| entry.requests > 0)
    }

    /// A request began to arrive.
    pub(crate) fn begin(self: &Arc<Self>) -> HttpExchange {
        self.table.update(self.number, |entry| {
            if entry.requests == 0 {
                entry.since = Instant::now();
            }
            entry.requests += 1;
        });
        HttpExchange {
            connection: Arc::clone(self),
            stage: Mutex::new(ExchangeStage::Arriving),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.table.lock().remove(self.number);
    }
}

/// A request and its answer, until the last byte of that is handed over.
#[derive(Debug)]
pub(crate) struct HttpExchange {
    connection: Arc<Connection>,
    stage: Mutex<ExchangeStage>,
}

#[derive(Debug, Clone, Copy)]
enum ExchangeStage {
    /// The request is not complete.
    Arriving,
    /// The request is complete.
    Complete,
    /// The answer is made, and is for nobody in particular. The number is the answer's key in `unclaimed`.
    Unclaimed(u64),
}

impl HttpExchange {
    /// Note that the request is complete.
    pub(crate) fn complete(&self) {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*stage, ExchangeStage::Arriving) {
            *stage = ExchangeStage::Complete;
            self.update(|entry| entry.complete += 1);
        }
    }

    /// Note that the answer is made, and is not for a caller that is known. `timed`: the connection ends if it takes too
    /// long, since nothing else watches it.
    pub(crate) fn hand_to_nobody(&self, timed: bool) {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let was = *stage;
        if matches!(was, ExchangeStage::Unclaimed(_)) {
            return;
        }
        self.update(|entry| {
            entry.leave(was);
            entry.numbers += 1;
            if timed {
                entry.unclaimed.insert(entry.numbers, Instant::now());
            }
            *stage = ExchangeStage::Unclaimed(entry.numbers);
        });
    }

    fn update(&self, change: impl FnOnce(&mut Entry)) {
        let connection = &self.connection;
        connection.table.update(connection.number, change);
    }
}

impl Drop for HttpExchange {
    fn drop(&mut self) {
        let stage = self.stage.get_mut();
        let stage = *stage.unwrap_or_else(PoisonError::into_inner);
        self.update(|entry| {
            entry.requests = entry.requests.saturating_sub(1);
            entry.leave(stage);
            entry.since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(places: usize, by_address: usize) -> Arc<ConnectionTable> {
        ConnectionTable::new(ConnectionShares { places, by_address })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    async fn has_ended(connection: &Connection) -> bool {
        let ended = tokio::time::timeout(Duration::from_millis(1), connection.ended());
        ended.await.is_ok()
    }

    #[tokio::test]
    async fn a_flood_displaces_itself() {
        let table = table(8, 8);
        let (flood, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let quiet = table.admit(other).expect("a place");
        let mut flooding: Vec<_> = (0..7).filter_map(|_| table.admit(flood)).collect();
        assert_eq!(flooding.len(), 7);
        for _ in 0..100 {
            flooding.push(table.admit(flood).expect("a place"));
            let first = flooding.remove(0);
            assert!(has_ended(&first).await);
        }
        assert!(!has_ended(&quiet).await);
        let newcomer = table.admit(address("10.0.0.3")).expect("a place");
        assert_eq!(newcomer.place(), ConnectionClass::Any);
        assert!(has_ended(&flooding[0]).await);
        assert_eq!((table.open(), table.evicted()), (8, 101));
    }

    #[tokio::test]
    async fn requests_that_are_worked_on_stay_and_health_is_still_asked() {
        let table = table(4, 4);
        let busy: Vec<_> = (0..4)
            .filter_map(|number| table.admit(address(&format!("10.0.0.{number}"))))
            .map(Arc::new)
            .collect();
        let exchanges: Vec<_> = busy.iter().map(Connection::begin).collect();
        exchanges.iter().for_each(HttpExchange::complete);
        let more: Vec<_> = (0..HEALTH_PLACES)
            .filter_map(|_| table.admit(address("10.0.1.1")))
            .map(Arc::new)
            .collect();
        assert!(
            more.iter()
                .all(|one| one.place() == ConnectionClass::Health)
        );
        // Places for health checks are given up like others.
        let next = table.admit(address("10.0.1.2")).expect("a place");
        drop(next);
        let busy_too: Vec<_> = more.iter().map(Connection::begin).collect();
        busy_too.iter().for_each(HttpExchange::complete);
        let last = table.admit(address("10.0.1.3"));
        assert!(last.is_none() || table.open() <= 4 + HEALTH_PLACES);
        for connection in &busy {
            assert!(!has_ended(connection).await);
        }
        // An answered request gives its place back.
        drop(exchanges);
        drop(busy_too);
        let newcomer = table.admit(address("10.0.2.1")).expect("a place");
        assert_eq!(newcomer.place(), ConnectionClass::Any);
    }

    #[tokio::test]
    async fn one_address_leaves_places_to_others() {
        let table = table(8, 6);
        let hog = address("10.0.0.1");
        let busy: Vec<_> = (0..6)
            .filter_map(|_| table.admit(hog))
            .map(Arc::new)
            .collect();
        let exchanges: Vec<_> = busy.iter().map(Connection::begin).collect();
        exchanges.iter().for_each(HttpExchange::complete);
        assert_eq!(
            table.admit(hog).expect("one for health").place(),
            ConnectionClass::Health
        );
        let other = table.admit(address("10.0.0.2")).expect("a place");
        assert_eq!(other.place(), ConnectionClass::Any);
    }

    #[tokio::test]
    async fn answers_for_nobody_in_particular_keep_no_place() {
        let table = table(3, 3);
        let [reader, both, known] =
            [1, 2, 3].map(|_| Arc::new(table.admit(address("10.0.0.1")).expect("a place")));
        let page = reader.begin();
        page.complete();
        let known_answer = known.begin();
        known_answer.complete();
        let (other_page, work) = (both.begin(), both.begin());
        work.complete();
        for page in [&page, &other_page] {
            page.hand_to_nobody(true);
            page.hand_to_nobody(true);
            page.complete();
        }
        let limit = Duration::from_millis(20);
        reader.overdue(limit).await;
        let wait = |connection: &Arc<Connection>| {
            let connection = Arc::clone(connection);
            async move { tokio::time::timeout(limit * 3, connection.overdue(limit)).await }
        };
        assert!(wait(&both).await.is_err() && wait(&known).await.is_err());
        let next = table.admit(address("10.0.0.1")).expect("a place");
        assert_eq!(next.place(), ConnectionClass::Any);
        assert!(has_ended(&reader).await);
        assert!(!has_ended(&both).await && !has_ended(&known).await);
        // What is over leaves nothing behind.
        drop((other_page, work));
        let state = table.lock();
        let entry = state.entries.get(&both.number).expect("it is there");
        assert!(entry.unclaimed.is_empty() && entry.complete == 0 && entry.requests == 0);
        drop(state);
        drop((page, known_answer, next));
    }

    #[tokio::test]
    async fn half_sent_requests_are_displaced_and_whole_ones_are_not() {
        let table = table(2, 2);
        let peers = [address("10.0.0.1"), address("10.0.0.2")];
        let [half, whole] = peers.map(|peer| Arc::new(table.admit(peer).expect("a place")));
        let begun = half.begin();
        let done = whole.begin();
        done.complete();
        assert!(half.is_in_request());
        let next = table.admit(address("10.0.0.3")).expect("a place");
        assert!(has_ended(&half).await && !has_ended(&whole).await);
        drop((begun, done, half, whole, next));
        assert_eq!(table.open(), 0);
    }

    #[test]
    fn networks_of_ipv6_count_as_one_address() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
        ] {
            let equal = network_of(address(one)) == network_of(address(other));
            assert_eq!(equal, same, "{one} {other}");
        }
    }
}
