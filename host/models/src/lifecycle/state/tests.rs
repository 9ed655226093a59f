//! Schedules of the state table: every order of events that the manager can meet, drawn at random.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;

/// Numbers that a seed determines (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap_or(0)
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The manager's part, without threads: loads take turns, unloads wait for the last user.
struct Simulation {
    table: StateTable,
    limits: RoomLimits,
    draw: Draw,
    now: u64,
    /// Models whose load has begun, in order; the first has the turn.
    turns: VecDeque<&'static str>,
    /// The first has room and is being read.
    reading: bool,
    /// Requests by model: those that use it, and those that wait for its load.
    using: BTreeMap<&'static str, usize>,
    waiting: BTreeMap<&'static str, usize>,
    /// Models whose runtime ended while requests used it; these still leave.
    crashed: BTreeSet<&'static str>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut draw = Draw(seed);
        let limits = RoomLimits {
            models: draw.below(4),
            bytes: [0, 100, 250][draw.below(3)],
        };
        let mut table = StateTable::new(limits);
        for name in NAMES {
            let pinned = draw.below(8) == 0;
            table.add(name, [0, 40, 90, 120][draw.below(4)], pinned);
            let company = match draw.below(6) {
                0 => Company::Alone,
                1 => Company::Group("x".to_owned()),
                2 => Company::Group("y".to_owned()),
                _ => Company::Any,
            };
            table.set_company(name, company);
        }
        Self {
            table,
            limits,
            draw,
            now: 0,
            turns: VecDeque::new(),
            reading: false,
            using: BTreeMap::new(),
            waiting: BTreeMap::new(),
            crashed: BTreeSet::new(),
        }
    }

    fn state(&self, name: &str) -> ModelState {
        self.table.slot(name).expect("a model").state
    }

    fn count(of: &BTreeMap<&'static str, usize>, name: &str) -> usize {
        of.get(name).copied().unwrap_or(0)
    }

    fn request(&mut self, name: &'static str) {
        match self.state(name) {
            ModelState::Loaded => {
                self.table.enter(name, self.now);
                *self.using.entry(name).or_default() += 1;
            }
            ModelState::Unloaded | ModelState::Loading => {
                self.table.enter(name, self.now);
                *self.waiting.entry(name).or_default() += 1;
                self.load(name);
            }
            // Refused, or asked again later.
            ModelState::Unloading | ModelState::Failed => {}
        }
    }

    fn load(&mut self, name: &'static str) {
        let before = self.state(name);
        let step = self.table.load(name).expect("a model");
        match before {
            ModelState::Unloaded | ModelState::Failed => {
                assert_eq!(step, LoadStep::Begin);
                self.turns.push_back(name);
            }
            ModelState::Loading => assert_eq!(step, LoadStep::Pending),
            ModelState::Loaded => assert_eq!(step, LoadStep::Done),
            ModelState::Unloading => assert_eq!(step, LoadStep::Unloading),
        }
    }

    fn end_request(&mut self, name: &'static str) {
        if let Some(users) = self.using.get_mut(name).filter(|users| **users > 0) {
            *users -= 1;
            self.table.leave(name, true, self.now);
        }
    }

    fn give_up_waiting(&mut self, name: &'static str) {
        let waiting = std::mem::take(self.waiting.entry(name).or_default());
        for _ in 0..waiting {
            self.table.leave(name, false, self.now);
        }
    }

    /// The load whose turn it is goes one step on.
    fn turn(&mut self) {
        let Some(&name) = self.turns.front() else {
            return;
        };
        assert_eq!(self.state(name), ModelState::Loading);
        if self.reading {
            let fails = self.draw.below(6) == 0;
            let bytes = self.table.slot(name).expect("a model").bytes;
            let result = match fails {
                true => Err("no such file".to_owned()),
                false => Ok(bytes),
            };
            self.table.loaded(name, result, self.now);
            (self.reading, _) = (false, self.turns.pop_front());
            match fails {
                true => self.give_up_waiting(name),
                false => {
                    let waited = std::mem::take(self.waiting.entry(name).or_default());
                    *self.using.entry(name).or_default() += waited;
                }
            }
            return;
        }
        match self.table.room(name) {
            LoadRoom::Free => self.reading = true,
            LoadRoom::Soon => {
                let mut states = NAMES.iter().map(|name| self.state(name));
                assert!(
                    states.any(|state| state == ModelState::Unloading),
                    "waits in vain"
                );
            }
            LoadRoom::Evict(victim) => {
                let slot = self.table.slot(&victim).expect("a model");
                assert!(!slot.pinned && slot.state == ModelState::Loaded);
                assert_eq!(self.table.unload(&victim), Some(UnloadStep::Begin));
            }
            LoadRoom::Never { .. } | LoadRoom::Excluded(_) => {
                self.table.refused(name);
                self.turns.pop_front();
                self.give_up_waiting(name);
            }
        }
    }

    /// The runtime of a model ends by itself, or that of an earlier load does.
    fn crash(&mut self, name: &'static str) {
        let before = self.state(name);
        let loads = self.table.slot(name).expect("a model").loads;
        let late = self.draw.below(2) as u64;
        let ended = self
            .table
            .ended(name, loads - late.min(loads), "it crashed".to_owned());
        assert_eq!(ended, before == ModelState::Loaded && late == 0);
        if ended {
            self.crashed.insert(name);
        }
    }

    /// An unload whose users have gone is finished.
    fn release(&mut self, name: &'static str) {
        if self.table.is_drained(name) {
            self.table.released(name);
        }
    }

    fn step(&mut self) {
        self.now += 1;
        let name = NAMES[self.draw.below(NAMES.len())];
        match self.draw.below(9) {
            0 | 1 => self.request(name),
            2 => self.end_request(name),
            3 => self.load(name),
            4 => {
                let _ = self.table.unload(name).expect("a model");
            }
            5 => self.release(name),
            6 => {
                let idle = self.table.idle(self.now, |_| Some(3));
                for name in idle {
                    assert_eq!(self.table.unload(&name), Some(UnloadStep::Begin));
                }
            }
            7 => self.crash(name),
            _ => self.turn(),
        }
        self.crashed
            .retain(|name| self.using.get(name).is_some_and(|users| *users > 0));
        self.check();
    }

    fn check(&self) {
        let (mut models, mut bytes) = (0, 0);
        for name in NAMES {
            let slot = self.table.slot(name).expect("a model");
            let (using, waiting) = (
                Self::count(&self.using, name),
                Self::count(&self.waiting, name),
            );
            assert_eq!(slot.users, using + waiting, "{name}: {slot:?}");
            if using > 0 && !self.crashed.contains(name) {
                let serves = [ModelState::Loaded, ModelState::Unloading];
                assert!(serves.contains(&slot.state), "{name} is used: {slot:?}");
            }
            if waiting > 0 {
                assert_eq!(slot.state, ModelState::Loading, "{name} is waited for");
            }
            let failed = slot.state == ModelState::Failed;
            assert_eq!(slot.last_error.is_some(), failed, "{name}: {slot:?}");
            let queued = self.turns.contains(&name);
            assert_eq!(
                slot.state == ModelState::Loading,
                queued,
                "{name}: {slot:?}"
            );
            let reads = self.reading && self.turns.front() == Some(&name);
            if slot.is_resident() || reads {
                models += 1;
                bytes += slot.bytes;
            }
        }
        let slots = NAMES.map(|name| self.table.slot(name).expect("a model"));
        let resident = || slots.iter().filter(|slot| slot.is_resident());
        for one in resident() {
            let company = resident().filter(|other| !std::ptr::eq(*other, one));
            let mut company = company.map(|other| one.company.excludes(&other.company));
            assert!(!company.any(|excluded| excluded), "{:?}", self.table);
        }
        let RoomLimits {
            models: most,
            bytes: budget,
        } = self.limits;
        assert!(most == 0 || models <= most, "{models} models of {most}");
        assert!(budget == 0 || bytes <= budget, "{bytes} bytes of {budget}");
    }

    /// Requests end, unloads and loads go on: nothing waits for ever.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.now += 1;
            for name in NAMES {
                while Self::count(&self.using, name) > 0 {
                    self.end_request(name);
                }
                self.release(name);
            }
            self.turn();
            self.check();
        }
        assert!(self.turns.is_empty(), "a load never ends: {:?}", self.table);
        for name in NAMES {
            let slot = self.table.slot(name).expect("a model");
            assert_eq!(slot.users, 0);
            assert!(!matches!(
                slot.state,
                ModelState::Loading | ModelState::Unloading
            ));
        }
    }
}

#[test]
fn feature_l1_no_schedule_leaves_the_table_of_states() {
    for seed in 0..20_000 {
        let mut simulation = Simulation::new(seed);
        for _ in 0..60 {
            simulation.step();
        }
        simulation.settle();
    }
}

#[test]
fn the_least_recently_used_model_is_evicted_first_and_an_idle_one_before_a_busy_one() {
    let mut table = StateTable::new(RoomLimits {
        models: 2,
        bytes: 0,
    });
    for (name, at) in [("a", 1), ("b", 2)] {
        table.add(name, 10, false);
        assert_eq!(table.load(name), Some(LoadStep::Begin));
        table.loaded(name, Ok(10), at);
    }
    table.add("c", 10, false);
    table.load("c");
    assert_eq!(table.room("c"), LoadRoom::Evict("a".to_owned()));
    table.enter("a", 3);
    table.leave("a", true, 3);
    assert_eq!(table.room("c"), LoadRoom::Evict("b".to_owned()));
    table.enter("b", 4);
    assert_eq!(table.room("c"), LoadRoom::Evict("a".to_owned()));
}

#[test]
fn feature_l7_requests_say_how_long_a_model_stays() {
    let mut table = StateTable::new(RoomLimits::default());
    for name in ["a", "b"] {
        table.add(name, 10, false);
        table.load(name);
        table.loaded(name, Ok(10), 0);
    }
    let idle = |table: &StateTable, now| table.idle(now, |_| Some(100));
    table.keep("a", u64::MAX);
    assert_eq!(idle(&table, 1_000_000), ["b"]);
    table.keep("a", 0);
    assert_eq!(idle(&table, 0), ["a"]);
    table.enter("a", 1);
    assert!(idle(&table, 50).is_empty(), "a request uses it");
    table.leave("a", true, 60);
    assert_eq!(idle(&table, 60), ["a"]);
    // What is loaded again is as configured.
    table.unload("a");
    table.released("a");
    table.load("a");
    table.loaded("a", Ok(10), 70);
    assert!(idle(&table, 80).is_empty());
}

#[test]
fn feature_m6_pinned_models_stay() {
    let mut table = StateTable::new(RoomLimits {
        models: 0,
        bytes: 100,
    });
    table.add("pinned", 80, true);
    table.add("other", 30, false);
    table.load("pinned");
    table.loaded("pinned", Ok(80), 1);
    table.load("other");
    let never = LoadRoom::Never {
        needed: 30,
        free: 20,
    };
    assert_eq!(table.room("other"), never);
    table.refused("other");
    assert_eq!(
        table.slot("other").map(|slot| slot.state),
        Some(ModelState::Unloaded)
    );
    assert!(table.idle(1000, |_| Some(1)).is_empty());
}

#[test]
fn feature_a1_adapters_take_room_of_their_model() {
    let mut table = StateTable::new(RoomLimits {
        models: 0,
        bytes: 100,
    });
    for (name, bytes) in [("a", 40), ("b", 30), ("c", 20)] {
        table.add(name, bytes, false);
        table.load(name);
    }
    for (name, bytes) in [("a", 40), ("b", 30)] {
        table.loaded(name, Ok(bytes), 0);
    }
    assert_eq!(table.grow("a", 31), Err(30), "a load that waits takes none");
    assert_eq!(table.grow("a", 20), Ok(()));
    assert_eq!(table.slot("a").map(|slot| slot.bytes), Some(60));
    assert_eq!(table.grow("b", 11), Err(10));
    assert!(matches!(table.room("c"), LoadRoom::Evict(_)));
    table.shrink("a", 20);
    assert_eq!(table.slot("a").map(|slot| slot.bytes), Some(40));
    assert_eq!(table.room("c"), LoadRoom::Free);
    let mut boundless = StateTable::new(RoomLimits::default());
    boundless.add("a", 1, false);
    assert_eq!(boundless.grow("a", u64::MAX), Ok(()));
}

#[test]
fn feature_l5_models_of_other_servers_take_no_room() {
    let mut table = StateTable::new(RoomLimits {
        models: 1,
        bytes: 0,
    });
    for name in ["here", "far", "other"] {
        table.add(name, 0, false);
    }
    table.set_elsewhere("far", true);
    for (name, at) in [("far", 1), ("here", 2)] {
        table.load(name);
        assert_eq!(table.room(name), LoadRoom::Free, "{name}");
        table.loaded(name, Ok(0), at);
    }
    table.load("other");
    // The one that was used earlier is elsewhere: to unload it makes no room.
    assert_eq!(table.room("other"), LoadRoom::Evict("here".to_owned()));
}
