//! Runs the server until a signal ends it.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use signal_hook::iterator::Signals;
use underpass_engine::Integrity;
use underpass_sandbox::{AllowedAccess, Sandbox};
use underpass_server::server::{Address, Control, Server, Settings};

use super::args::ServeArgs;
use super::certificate::{Certificate, Orders};
use super::control::{Watch, keep_signals};
use super::log_file::{AccessLog, LogFile};
use super::print::{self, Served};
use super::settings::settings as settings_of;
use super::share::goal::{Share, Timer};
use super::sockets;
use crate::failure::{Failure, Result};

/// Serves until a signal ends it.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    run_until(args, None)
}

/// Serves until a signal ends it, or what is shared needs no server any more.
pub(super) fn run_until(args: &ServeArgs, share: Option<&Arc<Share>>) -> Result<()> {
    let (certificate, orders) = Certificate::of(args)?.unzip();
    let orders = orders.flatten();
    let opened = args.origin.open(args)?;
    let mut settings =
        settings_of(args, certificate.as_ref().map(Certificate::credentials), opened.cache)?;
    let inherited = sockets::inherited()?;
    let addresses = addresses(args, !inherited.is_empty())?;
    if addresses.is_empty() && args.is_acme() {
        settings.redirect_http = args.tls.redirect_http;
    }
    if settings.redirect_http.is_some() && !addresses.iter().any(is_tcp) {
        let why = "--redirect-http needs an address with a port: give one by --bind";
        return Err(Failure::Usage(why.to_owned()));
    }
    orders.iter().try_for_each(|orders| orders.check_root(&settings.root))?;
    let log_file = settings.log.as_ref().map(|_| LogFile::open(args.log_file().map(Path::new)));
    let log_file = log_file.transpose()?;
    let certificates = certificate.iter().flat_map(Certificate::folders);
    let access = AllowedAccess {
        certificates: certificates.chain(opened.folders).collect(),
        ports: orders.iter().map(Orders::port).chain(opened.ports).collect(),
        keys: orders.as_ref().map(|orders| orders.folder().to_owned()),
        ..allowed_access(&settings, &addresses, log_file.as_ref())
    };
    let prefix = settings.path_prefix.clone();
    let is_open = settings.access.is_empty();
    // Who comes to what is shared knows the address, which nobody can guess.
    let allows_anonymous_writes = share.is_none()
        && (settings.changes.upload || settings.changes.delete)
        && settings.access.allows_anonymous_writes();

    let signals = keep_signals()?;
    let server = Server::bind(settings, &addresses, inherited)?;
    let reachable = sockets::reachable(&server.addresses());
    let sandbox = Sandbox {
        access: &access,
        user: args.user(),
        is_enabled: args.wants_sandbox(),
        reopened: &certificate.as_ref().map(Certificate::files).unwrap_or_default(),
        has_secrets: certificate.is_some() || !is_open,
    };
    // Nothing may start a thread before this.
    let confinement = sandbox.apply()?;
    orders.iter().try_for_each(Orders::check)?;
    print::started(&Served {
        root: &access.root,
        origin: args.origin.first(),
        addresses: &server.addresses(),
        reachable: &reachable,
        prints_qr: args.prints_qr(),
        redirects: &server.redirects(),
        certificate: certificate.as_ref(),
        prefix: &prefix,
        is_open,
        allows_anonymous_writes,
        confinement: &confinement,
        quiet: args.is_quiet(),
    });
    share.iter().for_each(|share| share.announce());
    if let Some(orders) = orders {
        orders.announce();
        let is_plain = |address: &Address| !is_tcp(address);
        let has_http = !server.redirects().is_empty() || addresses.iter().any(is_plain);
        orders.start(has_http, args.is_quiet())?;
    }
    serve(server, signals, log_file, certificate, (args.is_quiet(), share))
}

/// Returns the addresses to listen on, besides sockets that other programs have opened.
fn addresses(args: &ServeArgs, are_inherited: bool) -> Result<Vec<Address>> {
    match args.binds() {
        [] if are_inherited => Ok(Vec::new()),
        [] if args.is_acme() => sockets::addresses(&[format!(":{}", args.port())], args.port()),
        binds => sockets::addresses(binds, args.port()),
    }
}

/// Runs the server, its log and its signals, and returns what it did.
fn serve(
    mut server: Server,
    signals: Signals,
    log_file: Option<LogFile>,
    certificate: Option<Certificate>,
    (is_quiet, share): (bool, Option<&Arc<Share>>),
) -> Result<()> {
    let (log, writer) = log_file.map(AccessLog::start).unzip();
    let control = Control::new();
    let timer = share.map(|share| share.watch(&mut server, &control));
    let watch = Watch::start(signals, control.clone(), log.clone(), certificate);
    let started = Instant::now();
    let lines = log.clone();
    let line = move |line: &[u8]| lines.iter().for_each(|log| log.line(line));
    let outcome = server.run(control, line, move |note| print::event(&note, is_quiet));
    log.iter().for_each(AccessLog::end);
    // A panic of the thread was already reported.
    let _ = writer.map(JoinHandle::join);
    watch.end();
    timer.into_iter().for_each(Timer::end);
    print::ended(&outcome?, started.elapsed());
    Ok(())
}

fn is_tcp(address: &Address) -> bool {
    matches!(address, Address::Tcp(_))
}

/// Returns what the process needs once it is bound.
fn allowed_access(
    settings: &Settings,
    addresses: &[Address],
    log: Option<&LogFile>,
) -> AllowedAccess {
    let folder = |address: &Address| match address {
        Address::Unix(path) => std::path::absolute(path).ok()?.parent().map(Path::to_owned),
        Address::Tcp(_) => None,
    };
    AllowedAccess {
        root: settings.root.clone(),
        reads_everywhere: settings.allows_symlinks_outside,
        uploads: settings.changes.upload,
        deletes: settings.changes.delete,
        caches: settings.cache.is_some(),
        clones: settings.integrity == Integrity::Snapshot,
        log: log.and_then(LogFile::folder).map(Path::to_owned),
        certificates: Vec::new(),
        keys: None,
        ports: Vec::new(),
        sockets: addresses.iter().filter_map(folder).collect(),
    }
}
