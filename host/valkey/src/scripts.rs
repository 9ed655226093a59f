//! The scripts, each of which is one atomic change.

use redis::Script;
use redis::aio::MultiplexedConnection;

/// Scripts by what they do.
pub(crate) struct Scripts {
    pub(crate) take: Script,
    pub(crate) take_all: Script,
    pub(crate) adjust: Script,
    pub(crate) place: Script,
    pub(crate) release: Script,
    pub(crate) hold: Script,
    pub(crate) live: Script,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Self {
            take: Script::new(include_str!("scripts/take.lua")),
            take_all: Script::new(include_str!("scripts/take_all.lua")),
            adjust: Script::new(include_str!("scripts/adjust.lua")),
            place: Script::new(include_str!("scripts/place.lua")),
            release: Script::new(include_str!("scripts/release.lua")),
            hold: Script::new(include_str!("scripts/hold.lua")),
            live: Script::new(include_str!("scripts/live.lua")),
        }
    }

    /// Have the server know all of them, so that no request pays for it.
    pub(crate) async fn load(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), redis::RedisError> {
        let Self {
            take,
            take_all,
            adjust,
            place,
            release,
            hold,
            live,
        } = self;
        for script in [take, take_all, adjust, place, release, hold, live] {
            script.load_async(connection).await?;
        }
        Ok(())
    }
}
