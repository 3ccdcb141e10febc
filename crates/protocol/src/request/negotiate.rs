//! Chooses the form of a file or a page that the client prefers (RFC 9110 12).

use super::parse::Request;

/// The compression of a precompressed neighbour of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Brotli, RFC 7932.
    Br,
    /// Zstandard, RFC 8878.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    /// All codings, the best compression first.
    pub const ALL: [Self; 3] = [Self::Br, Self::Zstd, Self::Gzip];

    /// Returns the extension of the neighbour's name.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Br => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// Returns the name in `Accept-Encoding` and `Content-Encoding` (RFC 9110 8.4.1, RFC 8878
    /// 7.2).
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Returns whether `Accept-Encoding` means this coding by the name (8.4.1.3 has the old one
    /// of gzip).
    fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.token().as_bytes())
            || (self == Self::Gzip && name.eq_ignore_ascii_case(b"x-gzip"))
    }
}

/// Returns the codings that the client accepts at least as well as the plain file, best first.
///
/// The order is by the client's weights, and among equals by compression (12.5.3). A client that
/// does not send `Accept-Encoding` gets the plain file, though 12.5.3 would allow any coding: it
/// may not support one. If it refuses the plain file and no coding is available, it still gets the
/// plain file, as 12.5.3 allows: that helps more than 406.
pub fn acceptable(request: &Request) -> impl Iterator<Item = Coding> + use<> {
    let mut weights = [None; 3];
    let (mut others, mut plain) = (0, 0);
    for (name, weight) in members(request, "accept-encoding") {
        if name == b"*" {
            others = weight;
        } else if name.eq_ignore_ascii_case(b"identity") {
            plain = weight;
        } else if let Some(index) = Coding::ALL.iter().position(|coding| coding.is_named(name)) {
            weights[index] = Some(weight);
        }
    }
    let mut choices = [0, 1, 2].map(|index| (weights[index].unwrap_or(others), Coding::ALL[index]));
    choices.sort_by_key(|&(weight, _)| std::cmp::Reverse(weight)); // stable
    choices
        .into_iter()
        .filter(move |&(weight, _)| weight > 0 && weight >= plain)
        .map(|(_, coding)| coding)
}

/// Returns whether the client prefers JSON to a page.
#[must_use]
pub fn wants_json(request: &Request) -> bool {
    prefers(request, "application/json")
}

/// Returns whether the client names HTML in `Accept`, as browsers do; programs send `*/*`.
#[must_use]
pub fn wants_html(request: &Request) -> bool {
    members(request, "accept").any(|(name, q)| name.eq_ignore_ascii_case(b"text/html") && q > 0)
}

/// Returns whether the client names this media type in `Accept` and prefers it to `text/html`; if
/// equally, the one that it names first, and a name before a wildcard (12.5.1).
#[must_use]
pub fn prefers(request: &Request, media_type: &str) -> bool {
    let (mut wanted, mut page, mut wildcard) = (None, None, 0);
    for (index, (name, weight)) in members(request, "accept").enumerate() {
        if name.eq_ignore_ascii_case(media_type.as_bytes()) {
            wanted = wanted.or(Some((weight, index)));
        } else if name.eq_ignore_ascii_case(b"text/html") {
            page = page.or(Some((weight, index)));
        } else if name == b"*/*" || name.eq_ignore_ascii_case(b"text/*") {
            wildcard = wildcard.max(weight);
        }
    }
    let Some((weight, index)) = wanted else { return false };
    let (page_weight, page_index) = page.unwrap_or((wildcard, usize::MAX));
    weight > 0 && (weight > page_weight || (weight == page_weight && index < page_index))
}

/// Returns the names and weights in all fields of this name, the weights in thousandths.
fn members<'b>(request: &Request<'_, 'b>, name: &str) -> impl Iterator<Item = (&'b [u8], u16)> {
    request.fields(name).flat_map(|value| value.split(|&byte| byte == b',')).filter_map(|member| {
        let mut parts = member.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let weight = parts.find_map(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q=")));
        Some((name, weight.map_or(1000, thousandths)))
    })
}

/// Parses a weight, from `0` to `1.000` (12.4.2); an invalid weight counts as 0.
fn thousandths(weight: &[u8]) -> u16 {
    let (whole, fraction) = match weight {
        [whole] | [whole, b'.'] => (whole, &[] as &[u8]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return 0,
    };
    if !matches!(whole, b'0' | b'1') || !fraction.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    let digit = |index| fraction.get(index).map_or(0, |digit| u16::from(digit - b'0'));
    let fraction = digit(0) * 100 + digit(1) * 10 + digit(2);
    let weight = u16::from(whole - b'0') * 1000 + fraction;
    if weight > 1000 { 0 } else { weight }
}
