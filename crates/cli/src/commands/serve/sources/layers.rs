//! Options that were not typed: from the environment and, with lower priority, from the config
//! file.
//!
//! Both are converted to command-line arguments and put before the typed ones, so that there is one
//! parser, one set of messages, and no second list of options. An option from a lower layer is left
//! out as soon as a higher one has it, or has an option that excludes it: the higher one claims
//! both.
//!
//! ```text
//! words that were typed ─► ArgMatches ─► ConfigKeys ─┐
//! variables ───────────────────────────► ConfigKeys ─┼─► words ─► ArgMatches ─► ServeArgs
//! config file ─────────────────────────► ConfigKeys ─┘
//! ```
//!
//! Each `[[site]]` goes the same way once more, with its own keys as the highest layer, and becomes
//! one of the `SiteArgs`. Keys have the long names of options, with dashes; claims are by the ids of
//! clap, with underscores.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use underpass_server::{BadHost, HostPattern};

use super::super::args::{
    ConfigUsage, LimitArgs, LoggingArgs, OriginArgs, PlaceArgs, ServeArgs, SiteArgs,
};
use super::super::certificate::args::TlsArgs;
use super::config::{self, ConfigFile, ConfigKey, Reading, SiteTable};
use super::environment::{CONFIG, environment, variable};
use super::keys::{as_words, check, find, flag, invalid, is_settable, is_yes, name};
use crate::args::EngineArgs;
use crate::cli::with_negative_numbers;
use crate::failure::{Failure, Result};

/// Reads the options of a server from the typed words, the environment and the config file.
pub(crate) fn merge_sources(words: &[OsString], reading: Reading) -> Result<ServeArgs> {
    let command = ServeArgs::augment_args(Command::new("serve").args_override_self(true));
    let command = with_negative_numbers(command);
    let start = words.iter().position(|word| word == "serve").unwrap_or(words.len());
    let given = &command.clone().try_get_matches_from(&words[start..])?;
    let file = match given.get_one::<PathBuf>("config") {
        Some(file) => Some(file.clone()),
        None => variable(CONFIG).map(PathBuf::from),
    };
    let ConfigFile { mut keys, sites } =
        file.as_deref().map(|file| config::read(file, reading)).transpose()?.unwrap_or_default();
    let is_config_empty = file.is_some() && keys.is_empty() && sites.is_empty();
    let orders = remove_acme_flag(&mut keys, !sites.is_empty())?;
    let typed = expand_allow_all(given_keys(&command, given));
    let layers = [environment(&command), keys].map(expand_allow_all);
    let mut claimed = BTreeSet::new();
    for key in &typed {
        claim(&mut claimed, find(&command, key)?);
    }
    let added = merge(&command, claimed, layers.iter())?;
    let all = [OsString::from("serve")].into_iter().chain(added);
    let all = all.chain(words.iter().skip(start + 1).cloned());
    let merged = command.clone().try_get_matches_from(all)?;
    let mut args = ServeArgs::from_arg_matches(&merged)?;
    // A config file that lost its root must not open the current folder, unless that was typed.
    let is_without_files = sites.is_empty() && !has_files(&merged) && !args.redirects_all();
    if let Some(file) = file.as_deref().filter(|_| is_without_files) {
        return Err(Failure::value(file.display(), ConfigUsage::WithoutFiles));
    }
    let [environment, keys] = layers;
    let layers = [typed, environment, keys];
    let sites = sites.into_iter().map(|table| site(&command, table, &layers, orders));
    args.sites = sites.collect::<Result<_>>()?;
    args.of_server = of_server(&command, &layers);
    args.setup.config = file;
    args.typed = words.to_vec();
    args.is_config_empty = is_config_empty;
    Ok(args)
}

/// Returns the options of the whole server from all sources; the first of a name counts.
fn of_server(command: &Command, layers: &[Vec<ConfigKey>]) -> Vec<(String, Vec<OsString>)> {
    let is_certificate = |name: &str| matches!(name, "tls-cert" | "tls-key");
    let keys = layers.iter().flatten();
    let keys = keys.filter(|key| is_certificate(&key.name) || is_of_server(command, &key.name));
    keys.map(|key| (key.name.clone(), key.values.clone())).collect()
}

/// Returns whether an option of this name is the same for all sites.
fn is_of_server(command: &Command, wanted: &str) -> bool {
    let argument = command.get_arguments().find(|each| name(each) == wanted);
    let Some(id) = argument.map(Arg::get_id) else { return false };
    let groups = [
        EngineArgs::group_id(),
        LimitArgs::group_id(),
        LoggingArgs::group_id(),
        PlaceArgs::group_id(),
        TlsArgs::group_id(),
    ];
    let has = |group: &ArgGroup| {
        groups.contains(&Some(group.get_id().clone())) && group.get_args().any(|it| it == id)
    };
    (command.get_groups().any(has) && !OF_SITE.contains(&wanted)) || OF_SERVER.contains(&wanted)
}

/// Returns the options of one site, for which those of all other sources are the defaults.
fn site(
    command: &Command,
    table: SiteTable,
    defaults: &[Vec<ConfigKey>],
    orders: bool,
) -> Result<SiteArgs> {
    let SiteTable { place, keys } = table;
    let (mut names, mut is_default, mut own) = (Vec::new(), false, Vec::new());
    let is_certificate = |key: &ConfigKey| matches!(key.name.as_str(), "tls-cert" | "tls-key");
    let has_certificate = keys.iter().any(is_certificate);
    let mut is_ordered = orders && !has_certificate;
    for key in keys {
        match key.name.as_str() {
            "names" => names = self::names(&key)?,
            "default" => {
                is_default = flag(&key, "is neither true nor false")?;
            }
            "acme" => {
                is_ordered = flag(&key, "is true or false in a site, which has the names")?;
                if is_ordered && has_certificate {
                    return Err(invalid(&key, "gets certificates: leave out tls-cert and tls-key"));
                }
            }
            name if is_of_server(command, name) => {
                return Err(invalid(&key, "is for all sites: write it before the first [[site]]"));
            }
            _ => own.push(key),
        }
    }
    if names.is_empty() && !is_default {
        return Err(Failure::value(place, ConfigUsage::SiteWithoutNames));
    }
    let own = expand_allow_all(own);
    let mut claimed = not_inherited(&own, defaults);
    if is_ordered {
        claimed.extend(["tls_cert", "tls_key"].map(str::to_owned));
    }
    // An option that a site sets does not exclude another one that it sets.
    let mut words = merge(command, BTreeSet::new(), [&own])?;
    for key in &own {
        claim(&mut claimed, find(command, key)?);
    }
    words.extend(merge(command, claimed, defaults)?);
    words.insert(0, "serve".into());
    let merged = command.clone().try_get_matches_from(words)?;
    let (has_files, args) = (has_files(&merged), ServeArgs::from_arg_matches(&merged)?);
    Ok(SiteArgs { place, names, is_default, is_ordered, has_files, args })
}

/// Returns the ids of the options that a site with these ones of its own does not inherit: those of
/// a folder if it has an origin, and those of a cache if it has none.
fn not_inherited(own: &[ConfigKey], defaults: &[Vec<ConfigKey>]) -> BTreeSet<String> {
    let is_origin = |key: &&ConfigKey| key.name == "origin";
    let has_root = own.iter().any(|key| key.name == "root");
    let own_origin = own.iter().find(is_origin);
    let inherited = || defaults.iter().find_map(|layer| layer.iter().find(is_origin));
    let origin = own_origin.or_else(|| if has_root { None } else { inherited() });
    if origin.is_none_or(|origin| origin.values.is_empty()) {
        return of_origin();
    }
    let of_folder = own_origin.map(|_| NOT_OF_ORIGIN.map(str::to_owned));
    of_folder.into_iter().flatten().collect()
}

/// Returns whether any source names a root or an origin.
fn has_files(merged: &ArgMatches) -> bool {
    ["root", "origin"].iter().any(|id| merged.value_source(id) == Some(ValueSource::CommandLine))
}

/// Replaces --allow-all by the options that it stands for, unless they are set beside it: another
/// source, or a site, may refuse some of them.
fn expand_allow_all(keys: Vec<ConfigKey>) -> Vec<ConfigKey> {
    let is_all = |key: &ConfigKey| {
        key.name == "allow-all" && matches!(&key.values[..], [value] if is_yes(value).is_some())
    };
    let (all, mut keys): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_all);
    for key in all {
        for name in ["allow-upload", "allow-delete"] {
            if !keys.iter().any(|key| key.name == name) {
                keys.push(ConfigKey { name: name.to_owned(), ..key.clone() });
            }
        }
    }
    keys
}

/// Takes `acme = true` from the keys before the sites, for which it is a default there; otherwise
/// the key has names.
fn remove_acme_flag(keys: &mut Vec<ConfigKey>, has_sites: bool) -> Result<bool> {
    let is_flag = |key: &ConfigKey| {
        key.name == "acme" && matches!(&key.values[..], [one] if one == "true" || one == "false")
    };
    let Some(at) = keys.iter().position(is_flag) else { return Ok(false) };
    let key = keys.swap_remove(at);
    if !has_sites {
        return Err(invalid(&key, "needs names: acme = [\"files.example.org\"]"));
    }
    Ok(key.values[0] == "true")
}

/// Returns the names of a site.
fn names(key: &ConfigKey) -> Result<Vec<HostPattern>> {
    let name = |value: &OsString| {
        let text = value.to_string_lossy();
        let others = if text == "*" { "; default = true is for all other names" } else { "" };
        let fail = |error: BadHost| invalid(key, &format!("has {text:?}: {error}{others}"));
        text.parse().map_err(fail)
    };
    key.values.iter().map(name).collect()
}

/// Returns the words for the options of several layers, the first of which wins, without those that
/// are `claimed`.
fn merge<'k>(
    command: &Command,
    mut claimed: BTreeSet<String>,
    layers: impl IntoIterator<Item = &'k Vec<ConfigKey>>,
) -> Result<Vec<OsString>> {
    let mut words = Vec::new();
    for layer in layers {
        let mut claimed_here = BTreeSet::new();
        for entry in layer {
            let argument = find(command, entry)?;
            let added = as_words(argument, entry)?;
            check(command, &added, entry)?;
            if !claimed.contains(argument.get_id().as_str()) {
                claim(&mut claimed_here, argument);
                words.extend(added);
            }
        }
        claimed.append(&mut claimed_here);
    }
    Ok(words)
}

/// Returns the options that were typed.
fn given_keys(command: &Command, given: &ArgMatches) -> Vec<ConfigKey> {
    let is_typed = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let arguments = command.get_arguments().filter(|each| is_settable(each));
    let typed = arguments.filter(|each| is_typed(each.get_id().as_str())).map(|argument| {
        let values = given.get_raw(argument.get_id().as_str()).into_iter().flatten();
        ConfigKey {
            place: "the command line".to_owned(),
            name: name(argument).to_owned(),
            values: values.map(OsStr::to_owned).collect(),
        }
    });
    typed.collect()
}

/// Records that an option is given, and those that exclude it.
fn claim(claimed: &mut BTreeSet<String>, argument: &Arg) {
    let id = argument.get_id().as_str();
    claimed.insert(id.to_owned());
    if POLICY.contains(&id) {
        claimed.extend(POLICY.map(str::to_owned));
    }
    for own in CERTIFICATES.iter().filter(|source| source.contains(&id)) {
        let others = CERTIFICATES.iter().filter(|source| *source != own);
        claimed.extend(others.flat_map(|source| source.iter().map(|id| (*id).to_owned())));
    }
}

/// The options that exclude each other because each chooses mechanisms.
const POLICY: [&str; 3] = ["mechanism", "no_zero_copy", "prefer"];

/// A certificate is made, is in files, or is issued by a certificate authority: only one of these
/// sources can be given.
const CERTIFICATES: [&[&str]; 3] = [
    &["tls"],
    &["tls_cert", "tls_key"],
    &["acme", "acme_ca", "acme_directory", "acme_email", "acme_state"],
];

/// Options in groups of the whole server that each site may set for itself.
const OF_SITE: [&str; 4] = ["acme", "path-prefix", "tls-cert", "tls-key"];

/// Options of the whole server that are in none of its groups.
const OF_SERVER: [&str; 2] = ["no-sandbox", "user"];

/// Returns the ids of the options of a cache, which a site without an origin does not inherit.
fn of_origin() -> BTreeSet<String> {
    let command = OriginArgs::augment_args(Command::new("origin"));
    command.get_arguments().map(|argument| argument.get_id().as_str().to_owned()).collect()
}

/// The options of a folder, which a site with an origin does not inherit.
const NOT_OF_ORIGIN: [&str; 7] = [
    "allow_all",
    "allow_delete",
    "allow_symlink",
    "allow_upload",
    "render_index",
    "render_spa",
    "root",
];
