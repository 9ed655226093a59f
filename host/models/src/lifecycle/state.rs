//! States of a model, and the table of all models' states.
//!
//! The table is a plain data structure: it takes no lock, starts no thread and waits for nothing, so that
//! a test can run it through any order of events. [`ModelManager`](super::ModelManager) does the work.

use std::collections::BTreeMap;

/// State of a model. Only a loaded model serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelState {
    /// Not loaded; the model's files are known.
    Unloaded,
    /// Being loaded, or waiting for its turn.
    Loading,
    /// Loaded: requests are served.
    Loaded,
    /// Being unloaded: no request is taken, and the unload ends with the requests under way.
    Unloading,
    /// Failed: the last load of the model failed.
    Failed,
}

impl ModelState {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Unloaded,
        Self::Loading,
        Self::Loaded,
        Self::Unloading,
        Self::Failed,
    ];

    /// Name of the state on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unloaded => "unloaded",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Unloading => "unloading",
            Self::Failed => "failed",
        }
    }
}

/// Bounds of what is loaded at once. Zero is no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoomLimits {
    /// Models that are loaded at once.
    pub models: usize,
    /// Bytes of memory of all loaded models.
    pub bytes: u64,
}

/// One model in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelSlot {
    pub(crate) state: ModelState,
    /// Reason why the last load failed; kept until the next load begins.
    pub(crate) last_error: Option<String>,
    /// Requests that use the model or wait for its load.
    pub(crate) users: usize,
    /// Memory that the model takes, or is expected to take.
    pub(crate) bytes: u64,
    /// Flag of a pinned model, which is never evicted and never unloaded for being idle.
    pub(crate) pinned: bool,
    /// Time of the last request, or of the load, on the caller's clock.
    pub(crate) last_used: u64,
    /// Idle time after which the model is unloaded, where a request said so; the largest number is never.
    pub(crate) keep: Option<u64>,
    /// Requests that have used the model since the server's start.
    pub(crate) uses: u64,
    /// Loads begun.
    pub(crate) loads: u64,
    /// Models beside which the model may be loaded.
    pub(crate) company: Company,
    /// Flag of a model that runs on another server, and takes no room on this one.
    pub(crate) elsewhere: bool,
}

/// Models beside which a model may be loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Company {
    /// All models.
    #[default]
    Any,
    /// Models without a rule of their own.
    Alone,
    /// Models without a rule of their own, and models of the same group.
    Group(String),
}

impl Company {
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => false,
            (Self::Group(one), Self::Group(other)) => one != other,
            (Self::Alone, _) | (_, Self::Alone) => true,
        }
    }
}

impl ModelSlot {
    fn new(bytes: u64, pinned: bool) -> Self {
        Self {
            state: ModelState::Unloaded,
            last_error: None,
            users: 0,
            bytes,
            pinned,
            last_used: 0,
            keep: None,
            uses: 0,
            loads: 0,
            company: Company::Any,
            elsewhere: false,
        }
    }

    /// Residency: true while the model's memory is taken.
    fn is_resident(&self) -> bool {
        matches!(self.state, ModelState::Loaded | ModelState::Unloading)
    }
}

/// Answer to a request to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadStep {
    /// The caller is to load it now.
    Begin,
    /// A load is under way.
    Pending,
    /// The model is loaded.
    Done,
    /// The model is being unloaded.
    Unloading,
}

/// Answer to a request to unload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnloadStep {
    /// The caller is to release the model once no request uses it.
    Begin,
    /// An unload is under way.
    Pending,
    /// The model is not loaded.
    Done,
    /// The model is being loaded.
    Loading,
}

/// Room for one more model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadRoom {
    /// There is room.
    Free,
    /// An unload that is under way may make room.
    Soon,
    /// This model is to be unloaded first.
    Evict(String),
    /// A pinned model may not be loaded beside the model.
    Excluded(String),
    /// Pinned models leave no room, or the model is larger than the bound.
    Never {
        /// Bytes that the model needs.
        needed: u64,
        /// Bytes that pinned models leave.
        free: u64,
    },
}

/// States of all models.
#[derive(Debug, Default)]
pub(crate) struct StateTable {
    slots: BTreeMap<String, ModelSlot>,
    limits: RoomLimits,
}

impl StateTable {
    pub(crate) fn new(limits: RoomLimits) -> Self {
        Self {
            slots: BTreeMap::new(),
            limits,
        }
    }

    /// Add a model. `bytes` is the memory that the model is expected to take.
    pub(crate) fn add(&mut self, name: &str, bytes: u64, pinned: bool) {
        self.slots
            .entry(name.to_owned())
            .or_insert_with(|| ModelSlot::new(bytes, pinned));
    }

    /// Set the models beside which a model may be loaded.
    pub(crate) fn set_company(&mut self, name: &str, company: Company) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.company = company;
        }
    }

    /// Set whether a model runs on another server.
    pub(crate) fn set_elsewhere(&mut self, name: &str, elsewhere: bool) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.elsewhere = elsewhere;
        }
    }

    /// Remove a model that is not loaded.
    pub(crate) fn remove(&mut self, name: &str) {
        self.slots.remove(name);
    }

    pub(crate) fn set_pinned(&mut self, name: &str, pinned: bool) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.pinned = pinned;
        }
    }

    /// Memory that a model is expected to take from now on.
    pub(crate) fn set_bytes(&mut self, name: &str, bytes: u64) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.bytes = bytes;
        }
    }

    /// Add to the memory that a loaded model takes.
    ///
    /// # Errors
    /// When the bound does not allow it; the error is what is left.
    pub(crate) fn grow(&mut self, name: &str, bytes: u64) -> Result<(), u64> {
        let resident = self.slots.values().filter(|slot| slot.is_resident());
        let all = resident.fold(0u64, |sum, slot| sum.saturating_add(slot.bytes));
        let free = self.limits.bytes.saturating_sub(all);
        if self.limits.bytes != 0 && bytes > free {
            return Err(free);
        }
        if let Some(slot) = self.slots.get_mut(name) {
            slot.bytes = slot.bytes.saturating_add(bytes);
        }
        Ok(())
    }

    /// Subtract from the memory that a model takes.
    pub(crate) fn shrink(&mut self, name: &str, bytes: u64) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.bytes = slot.bytes.saturating_sub(bytes);
        }
    }

    pub(crate) fn slot(&self, name: &str) -> Option<&ModelSlot> {
        self.slots.get(name)
    }

    /// Answer a request to load a model; `None` if there is no such model.
    pub(crate) fn load(&mut self, name: &str) -> Option<LoadStep> {
        let slot = self.slots.get_mut(name)?;
        Some(match slot.state {
            ModelState::Unloaded | ModelState::Failed => {
                slot.state = ModelState::Loading;
                slot.last_error = None;
                slot.loads += 1;
                LoadStep::Begin
            }
            ModelState::Loading => LoadStep::Pending,
            ModelState::Loaded => LoadStep::Done,
            ModelState::Unloading => LoadStep::Unloading,
        })
    }

    /// Record the end of a load. A successful result is the memory that the model takes.
    pub(crate) fn loaded(&mut self, name: &str, result: Result<u64, String>, now: u64) {
        let Some(slot) = self.slots.get_mut(name) else {
            return;
        };
        if slot.state != ModelState::Loading {
            return;
        }
        match result {
            Ok(bytes) => {
                slot.state = ModelState::Loaded;
                slot.bytes = bytes;
                slot.last_used = now;
                slot.keep = None;
            }
            Err(error) => {
                slot.state = ModelState::Failed;
                slot.last_error = Some(error);
            }
        }
    }

    /// The runtime of a loaded model ended by itself: true if the model is still the one of that load.
    pub(crate) fn ended(&mut self, name: &str, loads: u64, error: String) -> bool {
        let slot = self.slots.get_mut(name);
        let same = |slot: &&mut ModelSlot| slot.state == ModelState::Loaded && slot.loads == loads;
        let Some(slot) = slot.filter(same) else {
            return false;
        };
        slot.state = ModelState::Failed;
        slot.last_error = Some(error);
        true
    }

    /// Record that a load was given up before it began, for lack of room.
    pub(crate) fn refused(&mut self, name: &str) {
        if let Some(slot) = self.slots.get_mut(name)
            && slot.state == ModelState::Loading
        {
            slot.state = ModelState::Unloaded;
        }
    }

    /// Answer a request to unload a model; `None` if there is no such model. A failed model is unloaded with that.
    pub(crate) fn unload(&mut self, name: &str) -> Option<UnloadStep> {
        let slot = self.slots.get_mut(name)?;
        Some(match slot.state {
            ModelState::Unloaded => UnloadStep::Done,
            ModelState::Failed => {
                slot.state = ModelState::Unloaded;
                slot.last_error = None;
                UnloadStep::Done
            }
            ModelState::Loading => UnloadStep::Loading,
            ModelState::Loaded => {
                slot.state = ModelState::Unloading;
                UnloadStep::Begin
            }
            ModelState::Unloading => UnloadStep::Pending,
        })
    }

    /// End of a drain: true if an unload can be finished, since nobody uses the model any more.
    pub(crate) fn is_drained(&self, name: &str) -> bool {
        self.slots
            .get(name)
            .is_some_and(|slot| slot.state == ModelState::Unloading && slot.users == 0)
    }

    /// Record that the memory of a drained model has been released.
    pub(crate) fn released(&mut self, name: &str) {
        if let Some(slot) = self.slots.get_mut(name)
            && slot.state == ModelState::Unloading
        {
            slot.state = ModelState::Unloaded;
        }
    }

    /// Record that a request begins to use the model, or to wait for it.
    pub(crate) fn enter(&mut self, name: &str, now: u64) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.users += 1;
            slot.last_used = now;
        }
    }

    /// Record the end of a request that has entered; `served` if the model answered it.
    pub(crate) fn leave(&mut self, name: &str, served: bool, now: u64) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.users = slot.users.saturating_sub(1);
            if served {
                slot.uses += 1;
                slot.last_used = now;
            }
        }
    }

    /// Set the idle time after which the model is to be unloaded, as a request says.
    pub(crate) fn keep(&mut self, name: &str, after: u64) {
        if let Some(slot) = self.slots.get_mut(name) {
            slot.keep = Some(after);
        }
    }

    /// Room for `name`, whose turn to be loaded it is. Other models that wait for their turn take none.
    pub(crate) fn room(&self, name: &str) -> LoadRoom {
        if let Some(room) = self.without_excluded(name) {
            return room;
        }
        if self.slots.get(name).is_some_and(|slot| slot.elsewhere) {
            return LoadRoom::Free;
        }
        let needed = self.slots.get(name).map_or(0, |slot| slot.bytes);
        let resident = || {
            let others = self.slots.iter().filter(move |(other, _)| *other != name);
            others.filter(|(_, slot)| slot.is_resident() && !slot.elsewhere)
        };
        let fits = |models: usize, bytes: u64| {
            let RoomLimits {
                models: most,
                bytes: budget,
            } = self.limits;
            (most == 0 || models < most) && (budget == 0 || bytes.saturating_add(needed) <= budget)
        };
        let bytes_of = |slots: &mut dyn Iterator<Item = &ModelSlot>| {
            slots.fold(0u64, |sum, slot| sum.saturating_add(slot.bytes))
        };
        let all = bytes_of(&mut resident().map(|(_, slot)| slot));
        if fits(resident().count(), all) {
            return LoadRoom::Free;
        }
        let fixed =
            || resident().filter(|(_, slot)| slot.pinned && slot.state == ModelState::Loaded);
        let kept = bytes_of(&mut fixed().map(|(_, slot)| slot));
        if !fits(fixed().count(), kept) {
            return LoadRoom::Never {
                needed,
                free: self.limits.bytes.saturating_sub(kept),
            };
        }
        if resident().any(|(_, slot)| slot.state == ModelState::Unloading) {
            return LoadRoom::Soon;
        }
        let candidates = resident().filter(|(_, slot)| !slot.pinned);
        let victim = candidates.min_by_key(|(_, slot)| (slot.users > 0, slot.last_used));
        match victim {
            Some((victim, _)) => LoadRoom::Evict(victim.clone()),
            None => LoadRoom::Never { needed, free: 0 },
        }
    }

    /// Action on loaded models that exclude `name`, if there are any.
    fn without_excluded(&self, name: &str) -> Option<LoadRoom> {
        let company = &self.slots.get(name)?.company;
        let excluded = |(other, slot): &(&String, &ModelSlot)| {
            *other != name && slot.is_resident() && company.excludes(&slot.company)
        };
        let excluded: Vec<_> = self.slots.iter().filter(excluded).collect();
        let loaded = |slot: &ModelSlot| slot.state == ModelState::Loaded;
        let stays = excluded
            .iter()
            .find(|(_, slot)| slot.pinned && loaded(slot));
        if let Some((other, _)) = stays {
            return Some(LoadRoom::Excluded((*other).clone()));
        }
        let leaves = excluded.iter().find(|(_, slot)| loaded(slot));
        match (leaves, excluded.is_empty()) {
            (Some((other, _)), _) => Some(LoadRoom::Evict((*other).clone())),
            (None, false) => Some(LoadRoom::Soon),
            (None, true) => None,
        }
    }

    /// Models that nobody has used for as long as requests, or else `idle_after`, say of each.
    pub(crate) fn idle(&self, now: u64, idle_after: impl Fn(&str) -> Option<u64>) -> Vec<String> {
        let unused = self.slots.iter().filter(|(_, slot)| slot.users == 0);
        let idle = unused.filter(|(name, _)| self.time_left(name, now, &idle_after) == Some(0));
        idle.map(|(name, _)| name.clone()).collect()
    }

    /// Time until the first of the models that nobody uses is to be unloaded; `None` if none is.
    pub(crate) fn next_idle(
        &self,
        now: u64,
        idle_after: impl Fn(&str) -> Option<u64>,
    ) -> Option<u64> {
        let unused = self.slots.iter().filter(|(_, slot)| slot.users == 0);
        let left = unused.filter_map(|(name, _)| self.time_left(name, now, &idle_after));
        left.min()
    }

    /// Time that a loaded model stays if no further request comes, the last of which may be under way; `None` if that
    /// is for ever.
    pub(crate) fn time_left(
        &self,
        name: &str,
        now: u64,
        idle_after: impl Fn(&str) -> Option<u64>,
    ) -> Option<u64> {
        let slot = self.slots.get(name)?;
        if slot.state != ModelState::Loaded || slot.pinned {
            return None;
        }
        let after = slot.keep.or_else(|| idle_after(name))?;
        let unused = match slot.users {
            0 => now.saturating_sub(slot.last_used),
            _ => 0,
        };
        (after != u64::MAX).then(|| after.saturating_sub(unused))
    }
}

#[cfg(test)]
mod tests;
