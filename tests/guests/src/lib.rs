//! Guests for the tests of the plugin host.

#[cfg(feature = "every-kind")]
mod behaviour;
#[cfg(feature = "every-kind")]
mod every_kind;
#[cfg(feature = "greedy-template")]
mod greedy_template;
#[cfg(feature = "inner-template")]
mod inner_template;
#[cfg(feature = "outer-template")]
mod outer_template;
#[cfg(any(feature = "inner-template", feature = "outer-template"))]
mod parts;
#[cfg(feature = "telling-policy")]
mod telling_policy;

/// A constructor that does not return: it runs before any export can be called.
#[cfg(feature = "endless-start")]
#[used]
#[unsafe(link_section = ".init_array")]
static ENDLESS: extern "C" fn() = {
    extern "C" fn endless() {
        behaviour::act("loop");
    }
    endless
};
