//! The addresses that `--bind` names.

use underpass_server::{Address, AddressError};

use crate::failure::{Failure, Result};

/// Returns the addresses that were typed; loopback if none was.
pub(crate) fn addresses(binds: &[String], port: u16) -> Result<Vec<Address>> {
    let mut addresses = Vec::new();
    let default = [DEFAULT.to_owned()];
    for bind in if binds.is_empty() { &default } else { binds } {
        for address in Address::resolve(bind, port).map_err(|error| failure(bind, error))? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    Ok(addresses)
}

/// Checks the form of an address, without looking up its name.
pub(crate) fn check(bind: &str) -> Result<()> {
    Address::check(bind).map_err(|error| failure(bind, error))
}

/// Returns the failure of an address that cannot be used.
fn failure(bind: &str, error: AddressError) -> Failure {
    let how = match error {
        AddressError::LookUp { host, source } => {
            return Failure::Network { action: "looking up", address: host, source };
        }
        AddressError::TwoPorts => {
            let how = "it would be two ports: write 0.0.0.0:0 or [::]:0";
            return Failure::value("--bind :0", how);
        }
        AddressError::Port => {
            format!("it is a port: write --port {bind}, or --bind :{bind} for every address")
        }
        _ => "write 0.0.0.0, ::1, a host name, HOST:PORT, :PORT or unix:PATH".to_owned(),
    };
    Failure::value(format_args!("--bind '{bind}' is not an address"), how)
}

/// Only this machine, unless the operator chooses another address.
const DEFAULT: &str = "127.0.0.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_the_default() {
        let loopback = Address::Tcp(([127, 0, 0, 1], 5000).into());
        assert_eq!(addresses(&[], 5000).ok(), Some(vec![loopback]));
    }
}
