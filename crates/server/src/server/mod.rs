//! The server itself: its settings, listeners and workers, and the state that these share.

pub(crate) mod control;
pub(crate) mod credentials;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod proxies;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod settings;
pub(crate) mod shared;
pub(crate) mod sites;
pub(crate) mod worker;

pub use control::Control;
pub use credentials::Credentials;
pub use limits::admission::max_connections;
pub use listen::address::{Address, AddressError};
pub use proxies::{BadNetwork, TrustedProxies};
pub use run::Server;
pub use settings::{
    Changes, PathHeader, ServeError, ServerEvent, ServerSummary, Settings, SiteSettings,
};
pub use sites::published::SiteControl;
pub use underpass_engine::MinFree;
pub use underpass_protocol::request::host_map::{BadHost, HostPattern};
pub use underpass_protocol::response::media_types::MediaTypes;
pub use underpass_protocol::response::redirect::{BadRedirect, Redirect};
