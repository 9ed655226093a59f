use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Doubles numbers, each of which has as many tokens as it says. It tells of each batch and waits for leave.
struct Doubles {
    begun: Mutex<Sender<Vec<usize>>>,
    leave: Mutex<Receiver<()>>,
}

/// A number that fails, and one at which the model breaks off.
const FAILS: usize = 13;
const PANICS: usize = 17;

impl ComputeBatch for Doubles {
    type Text = usize;
    type Made = usize;

    fn tokens(text: &usize) -> usize {
        *text
    }

    fn compute(&self, texts: &[usize]) -> Result<Vec<usize>, String> {
        let told = self.begun.lock().expect("no panic").send(texts.to_vec());
        told.expect("a listener");
        let leave = self.leave.lock().expect("no panic").recv();
        leave.expect("leave");
        if texts.contains(&FAILS) {
            return Err("thirteen".to_owned());
        }
        assert!(!texts.contains(&PANICS), "a defect");
        Ok(texts.iter().map(|text| text * 2).collect())
    }
}

struct Test {
    queue: Arc<TextQueue<Doubles>>,
    begins: Receiver<Vec<usize>>,
    leave: Sender<()>,
}

fn test(max_queue: usize) -> Test {
    test_within(QueueBounds::places(max_queue, false))
}

fn test_within(places: QueueBounds) -> Test {
    let (begun, begins) = channel();
    let (leave, leaves) = channel();
    let model = Doubles {
        begun: Mutex::new(begun),
        leave: Mutex::new(leaves),
    };
    Test {
        queue: Arc::new(TextQueue::new(model, places)),
        begins,
        leave,
    }
}

type Running = tokio::task::JoinHandle<Result<Vec<usize>, EmbedError>>;

impl Test {
    fn ask(&self, texts: &[usize]) -> Running {
        self.ask_as(&Share::default(), texts)
    }

    fn ask_as(&self, share: &Share, texts: &[usize]) -> Running {
        let (queue, texts) = (Arc::clone(&self.queue), texts.to_vec());
        let share = share.clone();
        tokio::spawn(async move { queue.run(texts, &share).await })
    }

    /// The batch that begins next.
    fn batch(&self) -> Vec<usize> {
        self.begins.recv().expect("a batch")
    }

    fn go(&self) {
        self.leave.send(()).expect("a model");
    }

    async fn waits(&self, tokens: usize) {
        while self.queue.load().waiting_tokens != tokens {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_texts_of_all_requests_in_turn() {
    let test = test(10);
    let first = test.ask(&[1]);
    assert_eq!(test.batch(), [1]);
    let large = test.ask(&[2000, 2001, 2002]);
    test.waits(1 + 6003).await;
    let small = test.ask(&[5, 6]);
    test.waits(1 + 6003 + 11).await;
    assert_eq!(test.queue.load().waiting, 2);
    test.go();
    // What was asked first does not keep the other waiting.
    assert_eq!(test.batch(), [2000, 5, 2001, 6]);
    test.go();
    assert_eq!(test.batch(), [2002]);
    assert_eq!(small.await.expect("no panic"), Ok(vec![10, 12]));
    test.go();
    assert_eq!(large.await.expect("no panic"), Ok(vec![4000, 4002, 4004]));
    assert_eq!(first.await.expect("no panic"), Ok(vec![2]));
    let load = test.queue.load();
    assert_eq!((load.waiting_tokens, load.finished), (0, 3));
    assert_eq!((load.steps, load.prefill_tokens), (3, 6015));
    assert_eq!(
        test.queue.run(Vec::new(), &Share::default()).await,
        Ok(Vec::new())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_is_longer_than_a_batch_is_alone() {
    let test = test(10);
    let asked = test.ask(&[BATCH_TOKENS - 1, 1, 1, BATCH_TOKENS + 5, 3]);
    for expected in [&[BATCH_TOKENS - 1, 1][..], &[1], &[BATCH_TOKENS + 5], &[3]] {
        assert_eq!(test.batch(), expected);
        test.go();
    }
    assert_eq!(asked.await.expect("no panic").map(|made| made.len()), Ok(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_that_of_its_request() {
    for bad in [FAILS, PANICS] {
        let test = test(10);
        let first = test.ask(&[1]);
        assert_eq!(test.batch(), [1]);
        let (good, failing) = (test.ask(&[2]), test.ask(&[bad, 3]));
        test.waits(1 + 2 + bad + 3).await;
        // All together, then each alone.
        for _ in 0..4 {
            test.go();
        }
        assert_eq!(good.await.expect("no panic"), Ok(vec![4]));
        let failed = failing.await.expect("no panic");
        assert!(matches!(failed, Err(EmbedError::Failed(_))), "{failed:?}");
        assert_eq!(first.await.expect("no panic"), Ok(vec![2]));
        test.waits(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_takes_its_texts_along() {
    let test = test(2);
    let first = test.ask(&[1]);
    assert_eq!(test.batch(), [1]);
    let gone = test.ask(&[7, 8]);
    test.waits(16).await;
    let refused = test.ask(&[9]).await.expect("no panic");
    assert_eq!(refused, Err(EmbedError::QueueFull { limit: 2 }));
    gone.abort();
    test.waits(1).await;
    let next = test.ask(&[3]);
    test.waits(4).await;
    // The one that had the batch computed goes, too; the others have theirs computed.
    first.abort();
    test.go();
    assert_eq!(test.batch(), [3]);
    test.go();
    assert_eq!(next.await.expect("no panic"), Ok(vec![6]));
    assert_eq!(test.queue.load().finished, 3);
}

fn share(tenant: &str, weight: u32) -> Share {
    Share {
        tenant: Arc::from(tenant),
        weight,
        key: Arc::from(""),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_waits_for_no_more_than_the_batch_of_another() {
    let test = test(1000);
    let (flood, late) = (share("flood", 1), share("late", 1));
    let mut asked = vec![test.ask_as(&flood, &[4000; 6])];
    assert_eq!(test.batch(), [4000]);
    for _ in 1..40 {
        asked.push(test.ask_as(&flood, &[4000; 6]));
    }
    test.waits(40 * 6 * 4000).await;
    let small = test.ask_as(&late, &[1, 2]);
    test.waits(40 * 6 * 4000 + 3).await;
    test.go();
    // Of the 240 texts of the flood, which wait longer, no more than what fits beside them goes along.
    let batch = test.batch();
    assert!(batch.contains(&1) && batch.contains(&2), "{batch:?}");
    test.go();
    assert_eq!(small.await.expect("no panic"), Ok(vec![2, 4]));
    drop(test.begins);
    asked.iter().for_each(Running::abort);
    drop(test.leave);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_have_tokens_by_weight() {
    let test = test(1000);
    let first = test.ask(&[1]);
    assert_eq!(test.batch(), [1]);
    let (heavy, light) = (share("heavy", 3), share("light", 1));
    let asked = [
        test.ask_as(&heavy, &[64; 100]),
        test.ask_as(&light, &[128; 50]),
    ];
    test.waits(1 + 12_800).await;
    test.go();
    let batch = test.batch();
    let of = |tokens: usize| batch.iter().filter(|text| **text == tokens).count() * tokens;
    let (heavy, light) = (of(64), of(128));
    assert!(heavy + light > BATCH_TOKENS - 128, "{heavy} and {light}");
    assert!(heavy.abs_diff(3 * light) <= 3 * 128, "{heavy} and {light}");
    for _ in 0..4 {
        test.go();
    }
    for asked in asked {
        assert!(asked.await.expect("no panic").is_ok());
    }
    assert_eq!(first.await.expect("no panic"), Ok(vec![2]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_leaves_places_to_others() {
    let test = test_within(QueueBounds::places(8, true));
    let (flood, late) = (share("flood", 1), share("late", 1));
    let first = test.ask_as(&flood, &[1]);
    assert_eq!(test.batch(), [1]);
    let asked = [2, 3, 4].map(|tokens| test.ask_as(&flood, &[tokens]));
    test.waits(10).await;
    let refused = test.ask_as(&flood, &[5]).await.expect("no panic");
    assert_eq!(refused, Err(EmbedError::TenantQueueFull { waiting: 4 }));
    let other = test.ask_as(&late, &[6]);
    test.waits(16).await;
    test.go();
    test.go();
    assert_eq!(other.await.expect("no panic"), Ok(vec![12]));
    assert_eq!(first.await.expect("no panic"), Ok(vec![2]));
    for asked in asked {
        assert!(asked.await.expect("no panic").is_ok());
    }
    assert_eq!(test.queue.load().waiting, 0);
}
