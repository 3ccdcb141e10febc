//! Finds the end of a message head.

/// Returns how many more bytes a head is certain to have; 0 if it is complete.
///
/// If the first line ends in CRLF, all lines are expected to, so that the end of the head has four
/// bytes. After a bare LF, which RFC 9112 2.2 lets a recipient accept, only one byte is certain.
pub(super) fn missing_of_head(head: &[u8]) -> usize {
    const END: &[u8] = b"\r\n\r\n";
    if head.ends_with(END) || head.ends_with(b"\n\n") {
        return 0;
    }
    let first_line = head.iter().position(|byte| *byte == b'\n');
    if first_line.is_some_and(|end| end == 0 || head[end - 1] != b'\r') {
        return 1;
    }
    let partial = (1..END.len()).rev().find(|len| head.ends_with(&END[..*len])).unwrap_or(0);
    // Before the end of the first line, it may still turn out to be a bare LF.
    if first_line.is_none() { (END.len() - partial).min(2) } else { END.len() - partial }
}
