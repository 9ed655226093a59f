//! The plugin that a command is about.

use mortise_harness::{PluginUnderTest, TestGrants, model_files};
use mortise_plugin::{ComponentSource, HostConfig, PluginHost};
use mortise_plugin_manager::PluginConfig;

use crate::args::{GrantArgs, PluginFileArgs};

/// Loads what the command line names.
pub(crate) trait LoadPlugin: Sized {
    /// On a host of its own.
    fn load(args: &PluginFileArgs) -> anyhow::Result<Self>;

    /// On a host that notes where plugins spend their time.
    fn profiled(args: &PluginFileArgs) -> anyhow::Result<Self>;

    /// On a host that keeps what each call took.
    fn timed(args: &PluginFileArgs) -> anyhow::Result<Self>;

    /// With what the command line grants.
    fn granted(self, grants: &GrantArgs) -> anyhow::Result<Self>;
}

impl LoadPlugin for PluginUnderTest {
    fn load(args: &PluginFileArgs) -> anyhow::Result<Self> {
        let config = HostConfig {
            cache_dir: args.cache.clone(),
            quick: true,
            ..HostConfig::default()
        };
        load_into(PluginHost::new(config)?, args)
    }

    fn profiled(args: &PluginFileArgs) -> anyhow::Result<Self> {
        let config = HostConfig {
            profile: true,
            ..HostConfig::default()
        };
        load_into(PluginHost::new(config)?, args)
    }

    fn timed(args: &PluginFileArgs) -> anyhow::Result<Self> {
        let config = HostConfig {
            cache_dir: args.cache.clone(),
            timings: true,
            ..HostConfig::default()
        };
        load_into(PluginHost::new(config)?, args)
    }

    fn granted(mut self, grants: &GrantArgs) -> anyhow::Result<Self> {
        let grants = TestGrants {
            origins: grants.origins.clone(),
            secrets: grants.secrets.clone(),
            now: grants.now,
        };
        grants.check(&self.component)?;
        self.grants = grants;
        Ok(self)
    }
}

fn load_into(host: PluginHost, args: &PluginFileArgs) -> anyhow::Result<PluginUnderTest> {
    let component = host.load(ComponentSource::File(args.file.clone()))?;
    let files = model_files(args.model.as_deref())?;
    Ok(PluginUnderTest::new(
        host,
        component,
        files,
        PluginConfig::default(),
    ))
}
