//! Parses the input as a listing: all entries lie beneath the folder, and each appears once.

use std::collections::HashSet;

use underpass_client::Url;
use underpass_client::tree::listing::read;
use underpass_client::tree::relative;

/// The initial inputs.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"h<a href=\"sub/\">sub/</a><a href='../'>up</a><a href=a%2Fb?C=N;O=D>",
    b"h<base href=\"/f%20/x/\"><script>'<a href=y>'</script><A HREF=\"&#46;&#46;/z\">",
    b"j[{\"name\":\"a:b\",\"type\":\"directory\",\"size\":3,\"mtime\":\"Sun, 09 Sep 2001 01:46:40 GMT\"}]",
    b"j{\"paths\":[{\"path_type\":\"Dir\",\"name\":\"d\",\"mtime\":1000}]}",
    b"j[{\"url\":\"./%FF\",\"mod_time\":\"2001-09-09T01:46:40.5Z\",\"mode\":\"0644\",\"is_dir\":true}]",
];

/// Checks the entries of the listing in the input.
pub(crate) fn check(data: &[u8]) {
    let Ok(base) = Url::parse("http://h:81/f%20/") else { return };
    let (media_type, body) = match data.split_first() {
        Some((b'j', body)) => ("application/json", body),
        Some((_, body)) => ("text/html", body),
        None => return,
    };
    let Some(listing) = read(&base, media_type, body) else { return };
    let mut seen = HashSet::new();
    for entry in &listing.entries {
        assert!(!entry.path.is_empty() && seen.insert(&entry.path));
        assert_eq!(relative(&entry.path).as_ref(), Ok(&entry.path));
        assert_eq!(entry.url.origin(), base.origin());
        assert!(entry.url.path().len() > base.path().len());
        assert!(entry.url.path().starts_with(base.path()));
        assert_eq!(entry.is_folder, entry.url.path().ends_with('/'));
        assert_eq!((entry.url.query(), entry.url.fragment()), (None, None));
    }
}
