//! The controls on a folder's page for clients that may change the folder.
//!
//! All of them need the scripts, so they are hidden until the scripts run: without scripts the page
//! is the same as for clients that can only read.

use std::sync::LazyLock;

use maud::{Markup, PreEscaped, html};

use crate::text::{compact, compact_style};

/// The changes that the reader of a page may make to the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangeRights {
    /// Whether files may be uploaded and folders created.
    pub upload: bool,
    /// Whether entries may be removed or, together with `upload`, renamed.
    pub delete: bool,
    /// Whether logging in may give more rights.
    pub log_in: bool,
    /// Whether the reader is logged in.
    pub log_out: bool,
}

impl ChangeRights {
    /// Returns whether no change may be made.
    pub(crate) fn nothing(self) -> bool {
        !self.upload && !self.delete
    }

    /// Returns the names of the rights in the scripts.
    pub(crate) fn words(self) -> &'static str {
        match (self.upload, self.delete) {
            (true, true) => "upload delete",
            (true, false) => "upload",
            (false, true) => "delete",
            (false, false) => "",
        }
    }
}

/// Returns the bar above the table: buttons, and the list of uploads once there are any.
pub(crate) fn bar(may: ChangeRights) -> Markup {
    html! {
        @if may.upload {
            section.change aria-label="Add to this folder" hidden {
                button type="button" data-do="files" { "Upload files" }
                button type="button" data-do="folder" { "Upload folder" }
                button type="button" data-do="make" { "New folder" }
                span.hint { "or drop files and folders here" }
                input #files type="file" multiple hidden aria-label="Files to upload";
                input #folder type="file" webkitdirectory hidden aria-label="Folder to upload";
            }
            section #uploads aria-labelledby="uploads-title" hidden {
                div.head {
                    h2 #uploads-title { "Uploads" }
                    span #total role="status" {}
                    button type="button" data-do="cancel" { "Cancel all" }
                    button type="button" data-do="clear" { "Clear" }
                }
                ul {}
            }
        }
    }
}

/// Returns the scripts, which follow the rest of the page.
pub(crate) fn scripts(may: ChangeRights) -> Markup {
    html! {
        @if !may.nothing() { script { (PreEscaped(CHANGE_SCRIPT.as_str())) } }
        @if may.upload { script { (PreEscaped(UPLOAD_SCRIPT.as_str())) } }
    }
}

/// The style of the controls.
pub(crate) static CHANGE_STYLE: LazyLock<String> =
    LazyLock::new(|| compact_style(include_str!("change.css")));

/// The script for removing, renaming and creating folders, partly shared by the upload script.
static CHANGE_SCRIPT: LazyLock<String> = LazyLock::new(|| compact(include_str!("change.js")));

/// The script for uploads.
static UPLOAD_SCRIPT: LazyLock<String> =
    LazyLock::new(|| compact(concat!(include_str!("resume.js"), include_str!("upload.js"))));
