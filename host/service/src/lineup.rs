//! Which plugins serve a request: by who asks, where, and for which model.

use std::sync::Arc;

use crate::plugins::{CompileGrammar, ParseOutput, RenderChat};

/// Who asks, where, and for which model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asking<'a> {
    /// The tenant that the policies named; none before they have, or if they named none.
    pub tenant: Option<&'a str>,
    /// Route pattern.
    pub route: &'a str,
    /// The model's public name; none on routes without a model.
    pub model: Option<&'a str>,
}

/// The requests that a plugin is for.
pub type Scope = Arc<dyn Fn(&Asking<'_>) -> bool + Send + Sync>;

/// Plugins of one kind in the order in which they are tried: the first whose scope holds a request
/// serves it.
pub struct Lineup<T: ?Sized>(Arc<[(Scope, Option<Arc<T>>)]>);

impl<T: ?Sized> Lineup<T> {
    /// Plugins with their scopes. `None` ends the search: such requests have no plugin.
    pub fn new(plugins: impl IntoIterator<Item = (Scope, Option<Arc<T>>)>) -> Self {
        Self(plugins.into_iter().collect())
    }

    /// One plugin for all requests.
    pub fn one(plugin: Arc<T>) -> Self {
        let all: Scope = Arc::new(|_| true);
        Self::new([(all, Some(plugin))])
    }

    /// The plugin that serves a request, if any does.
    pub fn choose(&self, asking: &Asking<'_>) -> Option<Arc<T>> {
        let serving = self.0.iter().find(|(scope, _)| scope(asking));
        serving.and_then(|(_, plugin)| plugin.clone())
    }
}

impl<T: ?Sized> Default for Lineup<T> {
    /// No plugin for any request.
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl<T: ?Sized> Clone for Lineup<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The plugins of a model.
#[derive(Clone, Default)]
pub struct ModelPlugins {
    /// Render conversations.
    pub chat_template: Lineup<dyn RenderChat>,
    /// Parse answers.
    pub parser: Lineup<dyn ParseOutput>,
    /// Compile grammars.
    pub grammar: Lineup<dyn CompileGrammar>,
}

impl ModelPlugins {
    /// Those that serve a request.
    pub fn choose(&self, asking: &Asking<'_>) -> RequestPlugins {
        RequestPlugins {
            chat_template: self.chat_template.choose(asking),
            parser: self.parser.choose(asking),
            grammar: self.grammar.choose(asking),
        }
    }
}

/// The plugins that serve one request, in all its rounds.
#[derive(Clone, Default)]
pub struct RequestPlugins {
    /// Renders conversations; without it, text can be continued only.
    pub chat_template: Option<Arc<dyn RenderChat>>,
    /// Parses answers; without it, all of an answer is content.
    pub parser: Option<Arc<dyn ParseOutput>>,
    /// Compiles grammars; without it, answers cannot be constrained.
    pub grammar: Option<Arc<dyn CompileGrammar>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking<'a>(tenant: Option<&'a str>, route: &'a str) -> Asking<'a> {
        Asking {
            tenant,
            route,
            model: Some("m"),
        }
    }

    #[test]
    fn the_first_whose_scope_holds_a_request_serves_it() {
        let acme: Scope = Arc::new(|asking| asking.tenant == Some("acme"));
        let chat: Scope = Arc::new(|asking| asking.route == "/chat");
        let all: Scope = Arc::new(|_| true);
        let lineup: Lineup<str> = Lineup::new([
            (acme, Some(Arc::from("acme's"))),
            (chat, None),
            (all, Some(Arc::from("everybody's"))),
        ]);
        let chosen = |tenant, route| lineup.choose(&asking(tenant, route));
        assert_eq!(chosen(Some("acme"), "/chat").as_deref(), Some("acme's"));
        assert_eq!(chosen(None, "/text").as_deref(), Some("everybody's"));
        assert_eq!(chosen(Some("umbrella"), "/chat"), None);
        let none: Lineup<str> = Lineup::default();
        assert_eq!(none.choose(&asking(None, "/text")), None);
    }
}
