//! Plugin routing: the plugins that serve a request, by tenant, route and model.

use std::sync::Arc;

use crate::plugins::{CompileGrammar, ParseOutput, RenderChat};
use crate::routing_key::RoutingKey;

/// Predicate over requests: whether a plugin serves one.
pub type ScopePredicate = Arc<dyn Fn(&RoutingKey<'_>) -> bool + Send + Sync>;

/// Plugins of one kind in order of precedence. The first whose scope matches a request serves it.
pub struct PluginRoutes<T: ?Sized>(Arc<[(ScopePredicate, Option<Arc<T>>)]>);

impl<T: ?Sized> PluginRoutes<T> {
    /// Plugins with their scopes. `None` ends the search: matching requests have no plugin.
    pub fn new(plugins: impl IntoIterator<Item = (ScopePredicate, Option<Arc<T>>)>) -> Self {
        Self(plugins.into_iter().collect())
    }

    /// One plugin for all requests.
    pub fn one(plugin: Arc<T>) -> Self {
        let all: ScopePredicate = Arc::new(|_| true);
        Self::new([(all, Some(plugin))])
    }

    /// Whether there is a plugin for some request.
    pub fn serves(&self) -> bool {
        self.0.iter().any(|(_, plugin)| plugin.is_some())
    }

    /// Plugin that serves a request, if any does.
    pub fn select(&self, key: &RoutingKey<'_>) -> Option<Arc<T>> {
        let serving = self.0.iter().find(|(scope, _)| scope(key));
        serving.and_then(|(_, plugin)| plugin.clone())
    }
}

impl<T: ?Sized> Default for PluginRoutes<T> {
    /// No plugin for any request.
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl<T: ?Sized> Clone for PluginRoutes<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Plugins bound to a model.
#[derive(Clone, Default)]
pub struct ModelPlugins {
    /// Chat templates.
    pub chat_template: PluginRoutes<dyn RenderChat>,
    /// Output parsers.
    pub parser: PluginRoutes<dyn ParseOutput>,
    /// Grammar compilers.
    pub grammar: PluginRoutes<dyn CompileGrammar>,
}

impl ModelPlugins {
    /// Whether some request finds an output parser, without which there are no tool calls.
    pub fn parses_calls(&self) -> bool {
        self.parser.serves()
    }

    /// Plugins that serve one request.
    pub fn select(&self, key: &RoutingKey<'_>) -> RequestPlugins {
        RequestPlugins {
            chat_template: self.chat_template.select(key),
            parser: self.parser.select(key),
            grammar: self.grammar.select(key),
        }
    }
}

/// Plugins that serve one request, in all rounds of its tool loop.
#[derive(Clone, Default)]
pub struct RequestPlugins {
    /// Chat template; without it, only text prompts can be answered.
    pub chat_template: Option<Arc<dyn RenderChat>>,
    /// Output parser; without it, all output is content.
    pub parser: Option<Arc<dyn ParseOutput>>,
    /// Grammar compiler; without it, output cannot be constrained.
    pub grammar: Option<Arc<dyn CompileGrammar>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key<'a>(tenant: Option<&'a str>, route: &'a str) -> RoutingKey<'a> {
        RoutingKey {
            tenant,
            route,
            model: Some("m"),
        }
    }

    #[test]
    fn the_first_matching_scope_serves() {
        let acme: ScopePredicate = Arc::new(|key| key.tenant == Some("acme"));
        let chat: ScopePredicate = Arc::new(|key| key.route == "/chat");
        let all: ScopePredicate = Arc::new(|_| true);
        let routes: PluginRoutes<str> = PluginRoutes::new([
            (acme, Some(Arc::from("acme's"))),
            (chat, None),
            (all, Some(Arc::from("everybody's"))),
        ]);
        let selected = |tenant, route| routes.select(&key(tenant, route));
        assert_eq!(selected(Some("acme"), "/chat").as_deref(), Some("acme's"));
        assert_eq!(selected(None, "/text").as_deref(), Some("everybody's"));
        assert_eq!(selected(Some("umbrella"), "/chat"), None);
        let none: PluginRoutes<str> = PluginRoutes::default();
        assert_eq!(none.select(&key(None, "/text")), None);
    }
}
