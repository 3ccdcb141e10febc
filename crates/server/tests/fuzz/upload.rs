//! The range of a part of an upload lies within its length, whatever fields say.

use std::sync::Arc;

use underpass_protocol::request::{ClientNet, parse};
use underpass_protocol::upload::{
    ContentRange, Owner, UpdateRange, UploadFields, UploadId, is_partial_name, owner_tag,
    partial_name, without_tokens,
};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\0\0\0\0\0\0\x03\xe8bytes 5-9/10",
    b"\0\0\0\0\0\0\x03\xe8bytes=5-9",
    b"\0\0\0\0\0\0\x03\xe8bytes=-5",
    b"\xff\xff\xff\xff\xff\xff\xff\xffappend",
    b"\0\0\0\0\0\0\0\x010123456789abcdef0123456789abcdef-18446744073709551615-k",
    b"\0\0\0\0\0\0\0\x01?1;a=2",
    b"\0\0\0\0\0\0\0\x01999999999999999 ;a",
    b"\0\0\0\0\0\0\0\x01.file.0123456789abcdef0123456789abcdef.upload",
];

/// A length and a value.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let (len, value) = (input.number(), input.0);
    if let Some(range) = ContentRange::parse(value) {
        assert!(range.len > 0 && range.first.checked_add(range.len).unwrap() <= range.total);
        assert_eq!(range.is_last(), range.first + range.len == range.total);
    }
    if let Some(range) = UpdateRange::parse(value) {
        assert!(range.start(len).is_none_or(|start| start <= len));
        let _ = range.fits(len);
    }
    if let Some(id) = UploadId::parse(value) {
        assert_eq!(UploadId::parse(id.to_string().as_bytes()), Some(id));
    }
    let name = &value[..value.len().min(255)];
    let owner = Owner::new(str::from_utf8(value).ok().map(Arc::from).as_ref(), ClientNet::of(None));
    let partial = partial_name(name, owner.part_of_name(name));
    assert!(partial.len() <= 255 && owner_tag(&partial) == Some(owner.tag()));
    assert!(without_tokens(value).len() <= value.len() + value.len() / 8);
    let _ = is_partial_name(value);
    check_fields(value);
}

/// Fields of resumable uploads: numbers as RFC 9651 has them, or nothing.
fn check_fields(value: &[u8]) {
    let head = [
        b"PATCH / HTTP/1.0\r\nUpload-Complete: ",
        value,
        b"\r\nUpload-Offset: ",
        value,
        b"\r\nUpload-Length: ",
        value,
        b"\r\n\r\n",
    ];
    let head = head.concat();
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let Ok(Some((request, _))) = parse(&head, &mut storage) else { return };
    let fields = UploadFields::of(&request);
    assert_eq!(fields.offset, fields.length);
    assert!(fields.complete.is_none() || fields.offset.is_none(), "a flag is no number");
    assert!(fields.offset.is_none_or(|offset| offset <= 999_999_999_999_999));
    if fields.complete.is_some() {
        assert!(matches!(request.single("upload-complete"), Some([b'?', b'0' | b'1', ..])));
    }
}
