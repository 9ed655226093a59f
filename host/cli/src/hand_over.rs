//! Hand-over of the listeners to a new process at SIGUSR2: it starts beside this one, which goes on until the new one is
//! ready, and then answers what is under way and ends. A new process that does not come up changes nothing.
//!
//! Both talk over a pair of sockets: the listeners go one way, and the other way the word that the new process is
//! ready, or that it needs the files that only one process may have open.

use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, bail};
use mortise_config::{Config, Inherited};
use mortise_http::HANDED_OVER;
use mortise_library::Library;
use mortise_models::lifecycle::ModelManager;
use mortise_supervise::supervise;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::Signal;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::doors::Doors;
use crate::limits::HAND_OVER_TIME;
use crate::notify;
use crate::reload::Reloader;
use crate::start;

/// Flag of the process that takes over. It stands for itself and is not passed on.
pub(crate) const FLAG: &str = "--take-over";
/// Listeners that are handed over, at most: main, its socket in the file system, admin.
const MAX_LISTENERS: usize = 3;
/// Longest line between the processes, in bytes.
const MAX_LINE: usize = 64;

/// Time that a process that ends may take to let go of all that it had open.
const SETTLED: Duration = Duration::from_millis(50);

/// Word of the new process: it answers from now on.
const READY: &str = "ready";
/// Word of the new process: it will be ready as soon as the files are free.
const FILES: &str = "files";

/// The side that goes on until another takes over.
pub(crate) struct HandOver {
    program: PathBuf,
    arguments: Vec<OsString>,
    doors: Arc<Doors>,
    /// Channel by which the listener hears that it is done.
    signals: mpsc::Sender<&'static str>,
    /// Another process has taken over.
    done: AtomicBool,
}

impl HandOver {
    /// Hand over at each SIGUSR2, until it succeeds.
    pub(crate) fn start(
        doors: Arc<Doors>,
        signals: mpsc::Sender<&'static str>,
        requests: Arc<Mutex<Signal>>,
    ) -> anyhow::Result<()> {
        let own = |argument: &OsString| argument != FLAG;
        let this = Arc::new(Self {
            // As it is now: later another file may have its name, which is then the one to start.
            program: std::env::current_exe().context("the program has no path")?,
            arguments: std::env::args_os().skip(1).filter(own).collect(),
            doors,
            signals,
            done: AtomicBool::new(false),
        });
        supervise("hand-over", move || {
            let (this, requests) = (Arc::clone(&this), Arc::clone(&requests));
            async move {
                while requests.lock().await.recv().await.is_some() {
                    this.attempt().await;
                }
            }
        });
        Ok(())
    }

    async fn attempt(&self) {
        if self.done.load(Relaxed) {
            return;
        }
        tracing::info!(program = %self.program.display(), "SIGUSR2: a new process is to take over");
        match self.hand_over().await {
            Ok(process) => {
                tracing::info!(process, "handed over");
                notify::main_process(process);
                let _ = self.signals.try_send(HANDED_OVER);
            }
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "no other process took over; this one goes on"
                );
            }
        }
    }

    /// Start the new process, and wait for its word. Its number.
    async fn hand_over(&self) -> anyhow::Result<u32> {
        let (ours, theirs) = UnixStream::pair().context("no pair of sockets")?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(FLAG);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let mut child = command.spawn().context("it cannot be started")?;
        // What the child was given is closed here, so that its end is seen.
        drop(command);
        let word = match self.send(&ours) {
            Ok(()) => self.word(&ours, &mut child).await,
            Err(error) => Err(error),
        };
        if let Err(error) = word {
            let _ = child.start_kill();
            let _ = child.wait().await;
            return Err(error);
        }
        let process = child.id().context("it has ended")?;
        self.doors.leave();
        self.done.store(true, Relaxed);
        // The other end sees it close when this process has ended, and nothing holds the files any more.
        let _ = ours.into_raw_fd();
        Ok(process)
    }

    /// Send the listeners.
    fn send(&self, channel: &UnixStream) -> anyhow::Result<()> {
        let listeners = self.doors.listeners();
        let names: Vec<&str> = listeners.iter().map(|(name, _)| *name).collect();
        let names = names.join(" ");
        let descriptors: Vec<BorrowedFd<'_>> = listeners.iter().map(|(_, fd)| *fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            bail!("there are too many listeners");
        }
        let text = [IoSlice::new(names.as_bytes())];
        sendmsg(channel, &text, &mut control, SendFlags::NOSIGNAL)
            .context("the listeners cannot be sent")?;
        Ok(())
    }

    /// Wait for the word of the new process.
    async fn word(&self, channel: &UnixStream, child: &mut Child) -> anyhow::Result<()> {
        let channel = channel.try_clone()?;
        channel.set_nonblocking(true)?;
        let mut lines =
            BufReader::new(tokio::net::UnixStream::from_std(channel)?.take(MAX_LINE as u64));
        let mut line = String::new();
        let read = tokio::select! {
            read = timeout(HAND_OVER_TIME, lines.read_line(&mut line)) => read,
            ended = child.wait() => bail!("it ended before it was ready: {}", ended?),
        };
        read.context("it was not ready in time")??;
        match line.trim_end() {
            READY | FILES => Ok(()),
            "" => bail!("it ended before it was ready"),
            _ => bail!("it said something else than that it is ready"),
        }
    }
}

/// Listeners that a process is started with, and the process that it takes over from, if it does.
pub(crate) struct InheritedListeners {
    pub(crate) inherited: Inherited,
    pub(crate) take_over: Option<TakeOver>,
    /// Becomes true when this process answers.
    answers: watch::Sender<bool>,
}

impl InheritedListeners {
    /// Listeners of the process that hands over, or of the service manager. Called once, before there are threads.
    pub(crate) fn receive(take_over: bool) -> anyhow::Result<Self> {
        if !take_over {
            return Ok(Self {
                inherited: Inherited::of_manager()?,
                take_over: None,
                answers: watch::Sender::new(true),
            });
        }
        let (take_over, inherited) = TakeOver::receive()?;
        Ok(Self {
            inherited,
            take_over: Some(take_over),
            answers: watch::Sender::new(false),
        })
    }

    /// When connections may be taken: at once, or when what another process still answers can be answered here.
    pub(crate) fn answers(&self) -> watch::Receiver<bool> {
        self.answers.subscribe()
    }

    /// Wait for the files that only one process may have open, if the settings name some. What takes long comes first,
    /// while the other process still answers.
    pub(crate) async fn prepare(
        &mut self,
        config: &Config,
        models: &Arc<ModelManager>,
        library: Option<&Arc<Library>>,
    ) -> anyhow::Result<()> {
        let ledger = config
            .spend
            .as_ref()
            .and_then(|spend| spend.ledger.as_ref());
        let files = config.state.store.path.is_some() || config.audit.file.is_some();
        let files = files || ledger.is_some() || library.is_some();
        let Some(take_over) = self.take_over.as_mut().filter(|_| files) else {
            return Ok(());
        };
        start::load_enabled(models, config.strict_models, config.engine.device).await?;
        take_over.wait_for_files().await?;
        if let Some(library) = library.cloned() {
            tokio::task::spawn_blocking(move || library.take()).await??;
        }
        Ok(())
    }

    /// Scan for models again if another process had the library until it ended: some may have come or gone.
    pub(crate) async fn look_again(&self, reloader: &Reloader) {
        let waited = self.take_over.as_ref().is_some_and(|other| other.alone);
        if waited && reloader.library().is_some() {
            let scan = reloader.rescan().await;
            if let Some(reason) = scan.error {
                tracing::warn!(
                    reason,
                    "the models were not listed anew; the next rescan does"
                );
            }
        }
    }

    /// This process answers from now on: tell the one that it takes over from, and the service manager.
    pub(crate) fn ready(&mut self) -> anyhow::Result<()> {
        self.answers.send_replace(true);
        if let Some(take_over) = &mut self.take_over {
            take_over.ready()?;
        }
        notify::ready();
        Ok(())
    }
}

/// The side that takes over.
pub(crate) struct TakeOver {
    channel: UnixStream,
    /// The other side has ended, and its files are free.
    alone: bool,
}

impl TakeOver {
    /// Get the listeners of the process that started this one, from standard input.
    pub(crate) fn receive() -> anyhow::Result<(Self, Inherited)> {
        let input = std::io::stdin().as_fd().try_clone_to_owned()?;
        let channel = UnixStream::from(input);
        let mut names = [0; MAX_LINE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_LISTENERS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut text = [IoSliceMut::new(&mut names)];
        let received = recvmsg(&channel, &mut text, &mut control, RecvFlags::CMSG_CLOEXEC)
            .context("`--take-over` is given by a server that hands over, and by nobody else")?;
        let messages = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = messages.flatten().collect();
        let names = names.get(..received.bytes).unwrap_or_default();
        let names = std::str::from_utf8(names).context("the listeners have no names")?;
        let mut inherited = Inherited::default();
        for (name, descriptor) in names.split(' ').zip(descriptors) {
            match name {
                "main" => inherited.main = Some(TcpListener::from(descriptor)),
                "admin" => inherited.admin = Some(TcpListener::from(descriptor)),
                "socket" => inherited.socket = Some(UnixListener::from(descriptor)),
                _ => {}
            }
        }
        if inherited.main.is_none() {
            bail!("no listener was handed over");
        }
        let alone = false;
        Ok((Self { channel, alone }, inherited))
    }

    /// Wait until the other process has answered what it had, and has ended: its files are free then.
    pub(crate) async fn wait_for_files(&mut self) -> anyhow::Result<()> {
        writeln!(self.channel, "{FILES}").context("the server that hands over has ended")?;
        tracing::info!(
            "waiting for the store, the audit log and the library, until the other process has ended"
        );
        let channel = self.channel.try_clone()?;
        channel.set_nonblocking(true)?;
        let mut channel = tokio::net::UnixStream::from_std(channel)?;
        let mut rest = [0; MAX_LINE];
        // An error is the end as well.
        while channel.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
        // A process that ends closes its descriptors one after another.
        sleep(SETTLED).await;
        self.alone = true;
        Ok(())
    }

    /// Tell the other process that this one answers from now on.
    pub(crate) fn ready(&mut self) -> anyhow::Result<()> {
        if self.alone {
            return Ok(());
        }
        writeln!(self.channel, "{READY}").context("the server that was to hand over has ended")
    }
}
