//! Public names to models: which of them a caller means.

use std::sync::Arc;

/// How far a name may be from a public name. The steps are tried in this order; an exact name or
/// alias always wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    /// A name that differs in case only.
    pub case_insensitive: bool,
    /// A part of exactly one model's name or aliases.
    pub substring: bool,
    /// Any name at all while there is one model only.
    pub sole_model: bool,
}

impl Default for Ladder {
    /// Everything that cannot pick the wrong one of several models.
    fn default() -> Self {
        Self {
            case_insensitive: true,
            substring: false,
            sole_model: true,
        }
    }
}

/// A model as the registry knows it.
#[derive(Debug, Clone)]
pub struct Entry<T> {
    /// The public name.
    pub name: String,
    /// Further names that mean this model.
    pub aliases: Vec<String>,
    /// When the model was made or loaded, in seconds since 1970.
    pub created: u64,
    /// Who it belongs to, for model lists.
    pub owned_by: String,
    /// What runs it.
    pub value: T,
}

impl<T> Entry<T> {
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }
}

/// Why a set of models makes no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Two models answer to one name.
    #[error("the name `{name}` stands for both `{first}` and `{second}`; rename one of them")]
    Duplicate {
        /// The name.
        name: String,
        /// A model that has it.
        first: String,
        /// Another.
        second: String,
    },
    /// A name is empty.
    #[error("a model has an empty name or alias; give it a name")]
    EmptyName,
}

/// No model of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no model is called `{name}`; available: {}", available.join(", "))]
pub struct UnknownModel {
    /// The name asked for.
    pub name: String,
    /// Public names that exist.
    pub available: Vec<String>,
}

/// All models of a server, in the order of its configuration. It does not change; a reload makes
/// a new one.
#[derive(Debug, Clone)]
pub struct Registry<T> {
    entries: Vec<Arc<Entry<T>>>,
    ladder: Ladder,
}

impl<T> Registry<T> {
    /// A registry of these models.
    pub fn new(entries: Vec<Entry<T>>, ladder: Ladder) -> Result<Self, RegistryError> {
        for (position, entry) in entries.iter().enumerate() {
            for name in entry.names() {
                if name.is_empty() {
                    return Err(RegistryError::EmptyName);
                }
                let earlier = &entries[..position];
                if let Some(other) = earlier
                    .iter()
                    .find(|other| other.names().any(|n| n == name))
                {
                    return Err(RegistryError::Duplicate {
                        name: name.to_owned(),
                        first: other.name.clone(),
                        second: entry.name.clone(),
                    });
                }
            }
        }
        Ok(Self {
            entries: entries.into_iter().map(Arc::new).collect(),
            ladder,
        })
    }

    /// The model that a caller means by `name`.
    pub fn resolve(&self, name: &str) -> Result<&Arc<Entry<T>>, UnknownModel> {
        self.exact(name)
            .or_else(|| self.regardless_of_case(name))
            .or_else(|| self.by_part(name))
            .or_else(|| self.sole())
            .ok_or_else(|| UnknownModel {
                name: name.to_owned(),
                available: self.entries.iter().map(|e| e.name.clone()).collect(),
            })
    }

    /// All models.
    pub fn entries(&self) -> &[Arc<Entry<T>>] {
        &self.entries
    }

    fn exact(&self, name: &str) -> Option<&Arc<Entry<T>>> {
        self.entries.iter().find(|e| e.names().any(|n| n == name))
    }

    fn regardless_of_case(&self, name: &str) -> Option<&Arc<Entry<T>>> {
        if !self.ladder.case_insensitive {
            return None;
        }
        let lower = name.to_lowercase();
        self.only(|candidate| candidate.to_lowercase() == lower)
    }

    fn by_part(&self, name: &str) -> Option<&Arc<Entry<T>>> {
        if !self.ladder.substring || name.is_empty() {
            return None;
        }
        let lower = name.to_lowercase();
        self.only(|candidate| candidate.to_lowercase().contains(&lower))
    }

    fn sole(&self) -> Option<&Arc<Entry<T>>> {
        match self.entries.as_slice() {
            [entry] if self.ladder.sole_model => Some(entry),
            _ => None,
        }
    }

    /// The model one of whose names matches, unless several models do: a guess between models
    /// would be wrong half of the time.
    fn only(&self, matches: impl Fn(&str) -> bool) -> Option<&Arc<Entry<T>>> {
        let mut found = self.entries.iter().filter(|e| e.names().any(&matches));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }
}

#[cfg(test)]
mod tests;
