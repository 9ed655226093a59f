//! Catalogue of models: public names, aliases, and the rules by which a name finds a model.

use std::sync::Arc;

/// Name matching: how a requested name may differ from a model's. The rules apply in this order; an
/// exact name or alias always wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameMatching {
    /// Names that differ in case only.
    pub case_insensitive: bool,
    /// Substrings of exactly one model's name or aliases.
    pub substring: bool,
    /// Any name while there is only one model.
    pub sole_model: bool,
}

impl Default for NameMatching {
    /// Every rule that cannot pick the wrong one of several models.
    fn default() -> Self {
        Self {
            case_insensitive: true,
            substring: false,
            sole_model: true,
        }
    }
}

/// Something that is found by name.
pub trait HasName {
    /// Public name.
    fn name(&self) -> &str;

    /// Further names.
    fn aliases(&self) -> &[String];
}

/// Name and aliases of a model.
fn names<T: HasName>(model: &T) -> impl Iterator<Item = &str> {
    std::iter::once(model.name()).chain(model.aliases().iter().map(String::as_str))
}

/// Names that do not make a catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Two models have one name.
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
    /// Name asked for.
    pub name: String,
    /// Public names that exist.
    pub available: Vec<String>,
}

/// All models of a server, in the order of its configuration. It is immutable; a reload makes a new
/// one.
#[derive(Debug, Clone)]
pub struct Catalogue<T> {
    models: Vec<Arc<T>>,
    matching: NameMatching,
}

impl<T: HasName> Catalogue<T> {
    /// A catalogue of these models.
    ///
    /// # Errors
    /// When a name is empty, or two models share one.
    pub fn new(models: Vec<T>, matching: NameMatching) -> Result<Self, CatalogueError> {
        for (position, model) in models.iter().enumerate() {
            for name in names(model) {
                if name.is_empty() {
                    return Err(CatalogueError::EmptyName);
                }
                let earlier = &models[..position];
                if let Some(other) = earlier
                    .iter()
                    .find(|other| names(*other).any(|n| n == name))
                {
                    return Err(CatalogueError::Duplicate {
                        name: name.to_owned(),
                        first: other.name().to_owned(),
                        second: model.name().to_owned(),
                    });
                }
            }
        }
        Ok(Self {
            models: models.into_iter().map(Arc::new).collect(),
            matching,
        })
    }

    /// The model that `name` finds.
    ///
    /// # Errors
    /// When it finds none, or a rule finds several.
    pub fn resolve(&self, name: &str) -> Result<&Arc<T>, UnknownModel> {
        self.exact(name)
            .or_else(|| self.regardless_of_case(name))
            .or_else(|| self.by_substring(name))
            .or_else(|| self.sole())
            .ok_or_else(|| UnknownModel {
                name: name.to_owned(),
                available: self.models.iter().map(|m| m.name().to_owned()).collect(),
            })
    }

    /// The model of this public name.
    pub fn get(&self, name: &str) -> Option<&Arc<T>> {
        self.models.iter().find(|model| model.name() == name)
    }

    /// The model that has exactly this name, its public one or another.
    pub fn named(&self, name: &str) -> Option<&Arc<T>> {
        self.exact(name)
    }

    /// The model that has this name, its public one or another, in other case if that is allowed.
    pub fn spelled(&self, name: &str) -> Option<&Arc<T>> {
        self.exact(name).or_else(|| self.regardless_of_case(name))
    }

    /// True if names that differ in case only mean the same.
    pub fn ignores_case(&self) -> bool {
        self.matching.case_insensitive
    }

    /// All models.
    pub fn models(&self) -> &[Arc<T>] {
        &self.models
    }

    fn exact(&self, name: &str) -> Option<&Arc<T>> {
        self.models.iter().find(|m| names(&***m).any(|n| n == name))
    }

    fn regardless_of_case(&self, name: &str) -> Option<&Arc<T>> {
        if !self.matching.case_insensitive {
            return None;
        }
        let lower = name.to_lowercase();
        self.only(|candidate| candidate.to_lowercase() == lower)
    }

    fn by_substring(&self, name: &str) -> Option<&Arc<T>> {
        if !self.matching.substring || name.is_empty() {
            return None;
        }
        let lower = name.to_lowercase();
        self.only(|candidate| candidate.to_lowercase().contains(&lower))
    }

    fn sole(&self) -> Option<&Arc<T>> {
        match self.models.as_slice() {
            [model] if self.matching.sole_model => Some(model),
            _ => None,
        }
    }

    /// The model one of whose names matches, unless several models do.
    fn only(&self, matches: impl Fn(&str) -> bool) -> Option<&Arc<T>> {
        let mut found = self.models.iter().filter(|m| names(&***m).any(&matches));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }
}

#[cfg(test)]
mod tests;
