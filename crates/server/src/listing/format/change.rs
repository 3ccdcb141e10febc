//! What the page of a folder has for those who may change it, and for nobody else.
//!
//! All of it works through the scripts, so it is out of sight until they run: without them the
//! page is as it is for those who only read.

use maud::{Markup, PreEscaped, html};

/// What the reader of a page may do with the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct May {
    /// Put files into it, and make folders.
    pub upload: bool,
    /// Remove what is in it; together with `upload`, rename it.
    pub delete: bool,
    /// Say who he is, by which he may do more.
    pub log_in: bool,
}

impl May {
    /// Whether the folder stays as it is.
    pub(crate) fn nothing(self) -> bool {
        !self.upload && !self.delete
    }

    /// The words by which the scripts know.
    pub(crate) fn words(self) -> &'static str {
        match (self.upload, self.delete) {
            (true, true) => "upload delete",
            (true, false) => "upload",
            (false, true) => "delete",
            (false, false) => "",
        }
    }
}

/// What stands above the table: buttons, and the uploads once there are any.
pub(crate) fn bar(may: May) -> Markup {
    html! {
        @if may.upload {
            div.change hidden {
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

/// The scripts. The rest of the page can be read by then.
pub(crate) fn scripts(may: May) -> Markup {
    html! {
        @if !may.nothing() { script { (PreEscaped(CHANGE_SCRIPT)) } }
        @if may.upload { script { (PreEscaped(UPLOAD_SCRIPT)) } }
    }
}

/// How it looks.
pub(crate) const CHANGE_STYLE: &str = include_str!("change.css");

/// Removing, renaming and making folders, and what uploads need too.
const CHANGE_SCRIPT: &str = include_str!("change.js");

/// Uploads.
const UPLOAD_SCRIPT: &str = include_str!("upload.js");
