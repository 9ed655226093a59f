//! Keys of callers that are taken on their own, whatever becomes of the rest of a reload.

use std::sync::Arc;

use crate::config::AuthConfig;
use crate::live::LivePlugins;

impl LivePlugins {
    /// Take keys and what they may on their own, with the plugins that serve now: neither the plugin folder nor the rest
    /// of the configuration is read. Returns whether they were taken: where the last key goes, the server would be open
    /// to everybody, and what else guards it comes with the plugins.
    ///
    /// # Errors
    /// When the policies that serve do not take them; then the keys from before stay in force.
    pub async fn take_auth(&self, auth: AuthConfig) -> Result<bool, String> {
        let mut state = self.state.lock().await;
        if auth.keys == 0 && state.auth.keys > 0 {
            return Ok(false);
        }
        let (config, models) = (Arc::clone(&state.config), state.models.clone());
        let library = state.library.clone();
        let bound = self.bind(&mut state, &config, &auth, &library, &models);
        let bound = bound.await.map_err(|unfit| unfit.message)?;
        if !bound.same_as(&state.bound) {
            self.switch(&bound, &models)
                .map_err(|unfit| unfit.message)?;
            bound.report(&state.bound);
            state.bound = bound;
            state.auth_changed = true;
        }
        state.auth = auth;
        state.auth_taken += 1;
        self.publish(&state);
        Ok(true)
    }
}
