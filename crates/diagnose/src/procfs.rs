//! Files of procfs with a line for each field, as proc(5) describes them.

/// Returns the text after `name:` in such a file, trimmed; `None` if there is no such line.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim_end() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let io = "read_bytes: 7\nwrite_bytes: 5\ncancelled_write_bytes: 3\n";
        assert_eq!(field(io, "write_bytes"), Some("5"));
        assert_eq!(field(io, "cancelled_write_bytes"), Some("3"));
        assert_eq!(field(io, "none"), None);
        assert_eq!(field("model name\t: A CPU: fast\n", "model name"), Some("A CPU: fast"));
    }
}
