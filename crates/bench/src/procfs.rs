//! Files of procfs with a line for each field, as proc(5) describes them.

/// What is behind `name:` in such a file, without the spaces around it; `None` if it is not there.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim_end() == name).map(|(_, value)| value.trim())
}

/// The number behind `name:`; 0 if it is not there.
pub(crate) fn count(text: &str, name: &str) -> u64 {
    field(text, name).and_then(|value| value.parse().ok()).unwrap_or(0)
}
