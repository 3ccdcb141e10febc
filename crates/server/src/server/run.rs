//! Starts and runs the file server: its sockets, descriptors and threads.
//!
//! Each worker is a thread with its own runtime, listener and open files. A connection is one task.
//! Work that may wait for a disk runs on helper threads, so a worker never blocks.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use crate::server::control::{Control, Phase};
use crate::server::listen::address::Address;
use crate::server::listen::kind::ListenerKind;
use crate::server::listen::{self, Listener};
use crate::server::serve;
use crate::server::settings::{ServeError, ServerEvent, ServerSummary, Settings};
use crate::server::shared::ServerState;
use crate::server::sites::published::{Published, SiteControl};
use crate::uploads;
use underpass_observe::access_log::AccessEntry;

/// A server that listens, and serves once it is [`run`](Self::run).
#[derive(Debug)]
pub struct Server {
    shared: Arc<ServerState>,
    published: Arc<Published>,
    listeners: Vec<Listener>,
}

impl Server {
    /// Opens the root and listens: on the addresses, and on sockets that other programs have opened
    /// already, as systemd hands them over.
    ///
    /// # Errors
    ///
    /// [`ServeError`], which names the part that failed.
    pub fn bind(
        mut settings: Settings,
        addresses: &[Address],
        inherited: Vec<OwnedFd>,
    ) -> Result<Self, ServeError> {
        let workers = settings.workers.max(1);
        let sites = std::mem::take(&mut settings.sites);
        let has_health = sites.iter().any(|site| site.health);
        let shared = Arc::new(ServerState::new(Settings { workers, ..settings }, has_health)?);
        let published = Arc::new(Published::new(&shared, sites)?);
        let settings = &shared.settings;
        let kind = if settings.tls.is_some() { ListenerKind::Tls } else { ListenerKind::Plain };
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = match address {
                Address::Tcp(address) => Listener::tcp(*address, kind, workers),
                Address::Unix(path) => Listener::unix(path, settings.socket_mode, workers),
            };
            listeners.push(listener?);
        }
        if let Some(port) = settings.redirect_http {
            let redirects = listen::redirects(&listeners, port, workers)?;
            listeners.extend(redirects);
        }
        for socket in inherited {
            listeners.push(Listener::inherited(socket, kind, workers)?);
        }
        Ok(Self { shared, published, listeners })
    }

    /// Returns the addresses for clients, such as `127.0.0.1:5000` or `unix:/run/underpass.sock`.
    /// If the server has a certificate, all of them use TLS except Unix sockets.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.places(|kind| !matches!(kind, ListenerKind::Redirect { .. }))
    }

    /// Returns the addresses that redirect clients to TLS.
    #[must_use]
    pub fn redirects(&self) -> Vec<String> {
        self.places(|kind| matches!(kind, ListenerKind::Redirect { .. }))
    }

    fn places(&self, is_meant: impl Fn(ListenerKind) -> bool) -> Vec<String> {
        let meant = self.listeners.iter().filter(|listener| is_meant(listener.kind));
        meant.map(|listener| listener.address.clone()).collect()
    }

    /// Calls `observer` with the entry of each response, once it has arrived at the client or
    /// its connection has ended. Several threads call it. After `Break` the connection gets no
    /// other response.
    pub fn observe(
        &mut self,
        observer: impl Fn(&AccessEntry) -> ControlFlow<()> + Send + Sync + 'static,
    ) {
        // Only the first observer is kept.
        let _ = self.shared.observer.set(Box::new(observer));
    }

    /// Returns a handle that replaces the sites while the server runs.
    #[must_use]
    pub fn sites(&self) -> SiteControl {
        SiteControl { shared: Arc::clone(&self.shared), published: Arc::clone(&self.published) }
    }

    /// Serves until `control` ends it. `log` takes the lines of the access log, `on_event` all
    /// other messages; both are called by several threads.
    ///
    /// # Errors
    ///
    /// [`ServeError::Io`] if a thread or its runtime cannot be created.
    pub fn run(
        mut self,
        control: Control,
        log: impl Fn(&[u8]) + Send + Sync + 'static,
        on_event: impl Fn(ServerEvent) + Send + Sync + 'static,
    ) -> Result<ServerSummary, ServeError> {
        let fail = |action| move |source| ServeError::Io { action, source };
        underpass_sys::prepare_allocator();
        self.shared.listen_to(log, on_event);
        let (shared, published) = (self.shared, self.published);
        for site in &published.get().all {
            shared.start_cache(site.settings.cache.as_ref());
        }
        let mut threads = Vec::new();
        for index in 0..shared.settings.workers {
            let socket = |each: &mut Listener| Some((each.sockets.pop()?, each.kind));
            let sockets: Vec<_> = self.listeners.iter_mut().filter_map(socket).collect();
            let (shared, published) = (Arc::clone(&shared), Arc::clone(&published));
            let (phase, control) = (control.subscribe(), control.clone());
            let work = move || {
                let ended = serve::run(shared, published, index, sockets, phase);
                if ended.is_err() {
                    // The worker could not start: the clients of its socket would be refused.
                    control.drain();
                }
                ended
            };
            let name = format!("worker-{index}");
            let thread = thread::Builder::new().name(name).spawn(work);
            threads.push(thread.map_err(fail("starting a thread"))?);
        }
        let stale_uploads = uploads::watch_stale_uploads(&published);
        wait_for_draining(&control);
        // This frees the paths of sockets for a server that is started now.
        drop(self.listeners);
        drop(stale_uploads);
        shared.report(ServerEvent::Draining { open: shared.transfers.len() });
        let mut left = 0;
        for thread in threads {
            match thread.join() {
                Ok(cut_off) => left += cut_off.map_err(fail("starting a runtime"))?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        shared.report(ServerEvent::Drained { left });
        let metrics = &shared.metrics;
        Ok(ServerSummary {
            requests: metrics.requests(),
            bytes: metrics.sent_bytes(),
            cut_off: left,
        })
    }
}

/// Waits until the server is to end.
fn wait_for_draining(control: &Control) {
    let mut phase = control.subscribe();
    let waiting = async move { drop(phase.wait_for(|phase| *phase >= Phase::Draining).await) };
    // It needs neither a clock nor sockets, so creating it cannot fail for want of them.
    match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime.block_on(waiting),
        Err(_) => thread::park(),
    }
}
