//! Runs the server until a signal ends it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use signal_hook::iterator::Signals;
use underpass_engine::{Integrity, socket};
use underpass_observe::log_writer::{LogBuffer, LogFile, MAX_ENTRIES};
use underpass_protocol::encode_segment;
use underpass_sandbox::Sandbox;
use underpass_server::{Address, Control, Server, Settings, SiteSettings};

use super::args::{ServeArgs, TlsUsage};
use super::certificate::{Certificate, Orders};
use super::control::{Reload, SignalWatch, keep_signals};
use super::log;
use super::print::{self, StartupFacts};
use super::settings::{OpenSites, access, reread_files, settings as settings_of};
use super::share::goal::{ShareGoal, Timer};
use super::sockets;
use crate::failure::Result;
use crate::output::{counted, note};

/// Serves until a signal ends it.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    run_until(args, None)
}

/// Serves until a signal ends it, or the share has reached its goal.
pub(super) fn run_until(args: &ServeArgs, share: Option<&Arc<ShareGoal>>) -> Result<()> {
    let user = args.user()?;
    let (certificate, orders) = Certificate::of(args, user.as_ref())?.unzip();
    let orders = orders.flatten();
    let mut open = OpenSites::new(certificate.as_ref(), orders.as_ref(), user.clone());
    let opened = open.open(args)?;
    let inherited = sockets::inherited()?;
    let addresses = addresses(args, !inherited.is_empty())?;
    let redirect_http = redirect_http(args, &addresses)?;
    let mut access = access(args, orders.as_ref(), &opened)?;
    let sites = opened.sites;
    let is_open = sites.iter().all(|site| site.access.is_empty());
    // Clients of a share must know its URL, which cannot be guessed.
    let allows_anonymous_writes = share.is_none() && sites.iter().any(allows_anonymous_writes);
    let has_secrets = certificate.is_some() || may_get_secrets(args, &sites);
    let what = what_is_served(args, &sites);
    let misses_local_readers = misses_local_readers(&sites);
    let url_path = url_path(args, &sites);
    let tls = certificate.as_ref().map(Certificate::credentials);
    let settings = Settings { redirect_http, ..settings_of(args, tls, sites)? };
    let log_file = log::open(args, &settings)?;
    access.log = log_file.as_ref().and_then(LogFile::folder).map(Path::to_owned);
    access.sockets = addresses.iter().filter_map(folder_of_socket).collect();
    let signals = keep_signals(share.is_some())?;
    let server = Server::bind(settings, &addresses, inherited)?;
    let reachable = sockets::reachable(&server.addresses());
    let sandbox = Sandbox {
        access: &access,
        user: user.as_ref(),
        is_enabled: !args.setup.no_sandbox,
        reopened: &Vec::from_iter(reread_files(args)),
        has_secrets,
    };
    // Nothing may start a thread before this.
    let confinement = sandbox.apply()?;
    orders.iter().try_for_each(Orders::check)?;
    print::started(&StartupFacts {
        what: &what,
        addresses: &server.addresses(),
        reachable: &reachable,
        prints_qr: args.prints_qr(),
        redirects: &server.redirects(),
        certificate: certificate.as_ref(),
        url_path: &url_path,
        is_open,
        allows_anonymous_writes,
        confinement: &confinement,
        misses_local_readers,
        quiet: args.logging.quiet,
    });
    opened.notes.iter().for_each(|text| note(text));
    share.iter().for_each(|share| share.announce());
    let control = orders.as_ref().map(Orders::control);
    if let Some(orders) = orders {
        orders.announce();
        let has_http = !server.redirects().is_empty() || !addresses.iter().all(is_tcp);
        orders.start(has_http, args.logging.quiet)?;
    }
    let reload = share.is_none().then(|| Reload {
        typed: args.typed.clone(),
        of_server: args.of_server.clone(),
        is_config_empty: args.is_config_empty,
        certificate,
        orders: control,
        open,
        sites: server.sites(),
        confined_to: confinement.restricts_files().then_some(access),
    });
    log::with_messages(|| serve(server, signals, log_file, reload, args, share))
}

/// Returns the port that redirects to HTTPS, if there is one. Sockets that other programs have
/// opened have none by default.
fn redirect_http(args: &ServeArgs, addresses: &[Address]) -> Result<Option<u16>> {
    let port = if addresses.is_empty() && args.is_acme() {
        args.tls.redirect_http
    } else {
        args.redirect_http()
    };
    if port.is_some() && !addresses.iter().any(is_tcp) {
        return Err(TlsUsage::RedirectWithoutPort.into());
    }
    Ok(port)
}

/// Returns the addresses to listen on, besides sockets that other programs have opened.
fn addresses(args: &ServeArgs, are_inherited: bool) -> Result<Vec<Address>> {
    match &args.place.bind[..] {
        [] if are_inherited => Ok(Vec::new()),
        [] if args.is_acme() => sockets::addresses(&[format!(":{}", args.port())], args.port()),
        binds => sockets::addresses(binds, args.port()),
    }
}

/// Runs the server, its log and its signals, and returns the summary.
fn serve(
    mut server: Server,
    signals: Signals,
    log_file: Option<LogFile>,
    reload: Option<Reload>,
    args: &ServeArgs,
    share: Option<&Arc<ShareGoal>>,
) -> Result<()> {
    let log = log_file.map(|file| log::start(file, MAX_ENTRIES)).transpose()?;
    let control = Control::new();
    let timer = share.map(|share| share.watch(&mut server, &control));
    let timer = timer.transpose().map_err(log::no_thread)?;
    let watch =
        SignalWatch::start(signals, control.clone(), log.clone(), reload, args.limits.drain);
    let watch = watch.map_err(log::no_thread)?;
    let (started, is_quiet) = (Instant::now(), args.logging.quiet);
    let lines = log.clone();
    let line = move |line: &[u8]| lines.iter().for_each(|log| log.line(line));
    let outcome = server.run(control, line, move |note| print::event(&note, is_quiet));
    if !log.iter().all(LogBuffer::end) {
        let name = args.logging.log_file.as_deref().unwrap_or(Path::new("standard output"));
        note(&format!("{} is blocked: the last log lines were lost", name.display()));
    }
    watch.end();
    timer.into_iter().for_each(Timer::end);
    print::ended(&outcome?, started.elapsed());
    Ok(())
}

fn is_tcp(address: &Address) -> bool {
    matches!(address, Address::Tcp(_))
}

/// Returns the folder of a socket, which is removed at the end.
fn folder_of_socket(address: &Address) -> Option<PathBuf> {
    match address {
        Address::Unix(path) => std::path::absolute(path).ok()?.parent().map(Path::to_owned),
        Address::Tcp(_) => None,
    }
}

/// Returns whether the sites have passwords, or may have some later: an origin may require keys or
/// a password, and a configuration is read again.
fn may_get_secrets(args: &ServeArgs, sites: &[SiteSettings]) -> bool {
    let has_any = |site: &SiteSettings| !site.access.is_empty() || site.cache.is_some();
    args.config_file().is_some() || sites.iter().any(has_any)
}

/// Returns whether every client may change files of a site.
fn allows_anonymous_writes(site: &SiteSettings) -> bool {
    (site.changes.upload || site.changes.delete) && site.access.allows_anonymous_writes()
}

/// Returns the URL path of the served folder or file: that of a folder ends in a slash, that of a
/// single file in its name, under which clients save it.
fn url_path(args: &ServeArgs, sites: &[SiteSettings]) -> String {
    let Some(site) = sites.first().filter(|_| args.sites.is_empty()) else { return "/".to_owned() };
    let file = site.root.as_deref().filter(|root| root.is_file()).and_then(Path::file_name);
    let name = file.map(|name| encode_segment(name.as_bytes())).unwrap_or_default();
    format!("{}/{name}", site.path_prefix)
}

/// Returns whether an integrity level needs to know what local peers have read, and the kernel
/// does not allow that.
fn misses_local_readers(sites: &[SiteSettings]) -> bool {
    let waits =
        |site: &SiteSettings| matches!(site.integrity, Integrity::Detect | Integrity::Lease);
    sites.iter().any(waits) && !socket::sees_local_peers()
}

/// Returns what is served, in words.
fn what_is_served(args: &ServeArgs, sites: &[SiteSettings]) -> String {
    match (sites, args.origin.first()) {
        _ if !args.sites.is_empty() => counted(sites.len() as u64, "site", "sites"),
        ([site, ..], origin) => {
            let root = site.root.as_deref().unwrap_or(Path::new("")).display();
            origin.map_or_else(|| root.to_string(), |origin| format!("{origin} through {root}"))
        }
        ([], _) => "nothing".to_owned(),
    }
}
