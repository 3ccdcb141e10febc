//! Selects the entries that a response shows, and writes them in the requested format.

use std::io;
use std::ops::ControlFlow;

use underpass_protocol::listing::Format;

use super::Listing;
use super::below::{self, Hits};
use super::entry::ListedEntry;
use super::format::form::{Form, Outline, PageCounts};
use super::format::html::HtmlForm;
use super::format::icon::is_picture;
use super::format::index::IndexForm;
use super::format::json::{JsonForm, SizeForm};
use super::format::multistatus::MultistatusForm;
use super::format::simple::SimpleForm;
use super::pick::{PageStart, Picked, PreviousPage};
use super::readme;
use super::scan::{Scan, ScannedEntry, add_up, complete, scan};

/// A listing for which the values of the response head are known.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The requested listing.
    listing: Listing<'a>,
    /// The sorted entries; `None` if they are too many, and are read while they are written.
    held: Option<Vec<ListedEntry>>,
    /// The counts and links of the page.
    outline: Outline,
}

impl<'a> Prepared<'a> {
    /// Selects the entries of the page in one pass, unless they are too many to hold.
    pub(super) fn new(listing: Listing<'a>) -> io::Result<Self> {
        if listing.query.is_walk() {
            return Self::walked(listing);
        }
        let mut picked = Picked::new(&listing);
        let lost_links = scan(&listing, |found| Ok(picked.offer(found)))?;
        if picked.is_overfull {
            return Ok(Self { listing, held: None, outline: Outline::default() });
        }
        let (before, remaining) = (picked.before, picked.remaining);
        let key = listing.query.order.key;
        let previous_page = match picked.previous() {
            PreviousPage::None => None,
            PreviousPage::First => Some(listing.query.link(None)),
            PreviousPage::After(last) => {
                Some(listing.query.link(Some(&last.place(key).to_cursor(key))))
            }
        };
        let found = picked.into_sorted();
        let rest = remaining.saturating_sub(found.len() as u64);
        let last = found.last().filter(|_| rest > 0);
        let next_page = last.map(|last| listing.query.link(Some(&last.place(key).to_cursor(key))));
        let total = before + remaining;
        let outline = Outline { before, total, next_page, previous_page, ..Outline::default() };
        Self::held(listing, &found, lost_links, outline)
    }

    /// Walks through all folders below.
    fn walked(listing: Listing<'a>) -> io::Result<Self> {
        if listing.query.format == Format::Size {
            let (tally, incomplete) = below::measure(&listing)?;
            let outline = Outline { tally: Some(tally), incomplete, ..Outline::default() };
            return Ok(Self { listing, held: Some(Vec::new()), outline });
        }
        let Hits { found, incomplete } = below::search(&listing)?;
        let total = found.len() as u64;
        let outline = Outline { total, incomplete, ..Outline::default() };
        Self::held(listing, &found, 0, outline)
    }

    /// Reads the attributes of the entries, and completes the outline with their counts.
    fn held(
        listing: Listing<'a>,
        found: &[ScannedEntry<'_>],
        lost_links: u64,
        mut outline: Outline,
    ) -> io::Result<Self> {
        let held: Vec<_> = (found.iter())
            .filter_map(|found| complete(&listing, found).transpose())
            .collect::<io::Result<_>>()?;
        let mut tally = PageCounts { lost_links, ..PageCounts::default() };
        held.iter().for_each(|entry| tally.add(entry));
        outline.tally = Some(tally);
        outline.has_pictures = held.iter().any(is_picture);
        Ok(Self { listing, held: Some(held), outline })
    }

    /// Returns whether entries may be missing because a walk reached one of its limits.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.outline.incomplete.is_some()
    }

    /// Returns the link to the next page, relative to the address of this one; `None` if this is
    /// the last.
    ///
    /// It is meant for `Link: <...>; rel="next"`, by which programs follow the pages of any format.
    #[must_use]
    pub fn next_page(&self) -> Option<&str> {
        self.outline.next_page.as_deref()
    }

    /// Returns the value of `Content-Type`.
    #[must_use]
    pub fn media_type(&self) -> &'static str {
        self.listing.query.format.media_type()
    }

    /// Returns whether the entries are in memory and sorted; otherwise they are read while written.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the maximum number of bytes that [`write`](Self::write) produces for a listing that
    /// is not held, as long as no entries are added to the folder. For properties it is unknown.
    ///
    /// # Errors
    ///
    /// The errors of reading the folder; this reads its names.
    pub fn longest(&self) -> io::Result<u64> {
        let (entry, byte) = match self.listing.query.format {
            Format::Html | Format::Index => (HTML_ROW, HTML_BYTE),
            Format::Json | Format::Ndjson => (JSON_OBJECT, JSON_BYTE),
            Format::Simple | Format::Size => (SIMPLE_LINE, SIMPLE_BYTE),
            Format::Multistatus => return Ok(u64::MAX),
        };
        let rows = add_up(&self.listing, |name| entry + byte * name.len() as u64)?;
        Ok(rows.saturating_add(FRAME))
    }

    /// Writes the listing to `sink` in pieces of about 32 KiB.
    ///
    /// # Errors
    ///
    /// The errors of the sink, and of reading the folder if it is too large to hold. The written
    /// part is then incomplete.
    pub fn write(self, sink: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> io::Result<()> {
        let Self { listing, held, mut outline } = self;
        let Some(entries) = held else {
            let mut unsorted = Unsorted::new(&listing)?;
            while let Some(piece) = unsorted.next(&listing)? {
                sink(piece)?;
            }
            return Ok(());
        };
        outline.readme = readme::find(&listing);
        let mut pieces = PageWriter { buf: Vec::with_capacity(PIECE_LEN), sink };
        let mut form = form(&listing, &outline, true);
        form.begin(&mut pieces.buf);
        form.check()?;
        for entry in &entries {
            form.entry(entry, &mut pieces.buf);
            form.check()?;
            pieces.pass_on()?;
        }
        form.end(&outline.tally.unwrap_or_default(), &mut pieces.buf);
        (pieces.sink)(pieces.buf)
    }
}

/// A listing in the kernel's order, which can pause after each piece.
///
/// It holds no entries and borrows nothing: each piece is requested with the same listing.
#[derive(Debug)]
pub struct Unsorted {
    scan: Scan,
    tally: PageCounts,
    /// Whether the entry before the first one is a folder; looked up only once.
    starts_after_folder: bool,
    next_part: NextPart,
}

/// The part that is written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextPart {
    Begin,
    Entries,
    End,
    Nothing,
}

impl Unsorted {
    /// Creates a listing that begins with the first entry.
    ///
    /// # Errors
    ///
    /// The errors of opening the folder.
    pub fn new(listing: &Listing<'_>) -> io::Result<Self> {
        Ok(Self {
            scan: Scan::new(listing)?,
            tally: PageCounts::default(),
            starts_after_folder: listing.start().is_some_and(|start| start.is_folder),
            next_part: NextPart::Begin,
        })
    }

    /// Returns the next piece, of some ten KiB, or `None` at the end.
    ///
    /// # Errors
    ///
    /// The errors of reading the folder. The pieces so far are then incomplete.
    pub fn next(&mut self, listing: &Listing<'_>) -> io::Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        let outline = Outline::default();
        let start = PageStart::with_kind(listing, self.starts_after_folder);
        let (step_len, enough) = match listing.query.format {
            // The properties of an entry can be a thousand times as long as its name.
            Format::Multistatus => (LEAST_STEP_LEN, PIECE_LEN),
            _ => (STEP_LEN, 1),
        };
        while out.len() < enough && self.next_part != NextPart::Nothing {
            let is_first = self.tally.folders + self.tally.files == 0;
            let mut form = form(listing, &outline, is_first);
            match self.next_part {
                NextPart::Begin => {
                    form.begin(&mut out);
                    form.check()?;
                    self.next_part = NextPart::Entries;
                }
                NextPart::Entries => {
                    let tally = &mut self.tally;
                    let step = self.scan.step(listing, step_len, |found| {
                        if !start.is_before(&found)
                            && let Some(entry) = complete(listing, &found)?
                        {
                            tally.add(&entry);
                            form.entry(&entry, &mut out);
                            form.check()?;
                        }
                        Ok(ControlFlow::Continue(()))
                    })?;
                    if step.is_break() {
                        self.next_part = NextPart::End;
                    }
                }
                NextPart::End => {
                    self.tally.lost_links = self.scan.lost_links;
                    form.end(&self.tally, &mut out);
                    self.next_part = NextPart::Nothing;
                }
                NextPart::Nothing => {}
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }
}

/// Creates the requested format; `is_first` is true until it has written an entry.
fn form<'l>(listing: &'l Listing<'_>, outline: &'l Outline, is_first: bool) -> Box<dyn Form + 'l> {
    match listing.query.format {
        Format::Html => Box::new(HtmlForm::new(listing, outline)),
        Format::Index => Box::new(IndexForm { listing, outline }),
        Format::Json => Box::new(JsonForm::array(is_first)),
        Format::Ndjson => Box::new(JsonForm::lines(is_first)),
        Format::Simple => Box::new(SimpleForm),
        Format::Size => Box::new(SizeForm(outline)),
        Format::Multistatus => Box::new(MultistatusForm::new(listing)),
    }
}

/// Hands a listing over piece by piece.
struct PageWriter<'s> {
    /// The bytes that were not handed over yet.
    buf: Vec<u8>,
    /// Accepts the pieces, and fails once the client has disconnected.
    sink: &'s mut dyn FnMut(Vec<u8>) -> io::Result<()>,
}

impl PageWriter<'_> {
    /// Hands the buffer over if it is full.
    fn pass_on(&mut self) -> io::Result<()> {
        if self.buf.len() < PIECE_LEN {
            return Ok(());
        }
        // Leave room for the entry that exceeds the length of a piece.
        let next = Vec::with_capacity(PIECE_LEN + PIECE_LEN / 16);
        (self.sink)(std::mem::replace(&mut self.buf, next))
    }
}

/// The length of a piece, about 150 entries of a page: large enough that handing it to another
/// thread costs little compared with writing it.
const PIECE_LEN: usize = 32 << 10;

/// The bytes of names, some 200 entries, read at once for a piece of an unsorted listing.
const STEP_LEN: usize = 8 << 10;

/// The number of bytes that hold one longest name, or some ten short ones.
const LEAST_STEP_LEN: usize = 512;

/// The maximum length of a row of the page, and per byte of a name in it: twice percent-encoded,
/// and once as text in which a quotation mark takes six bytes.
const HTML_ROW: u64 = 800;
const HTML_BYTE: u64 = 12;

/// The maximum length of a JSON object, and per byte of a name in it: a control character takes six
/// bytes, and a byte that is not UTF-8 takes three in each of three fields.
const JSON_OBJECT: u64 = 256;
const JSON_BYTE: u64 = 9;

/// The maximum length of a line of plain names, and per byte of a name in it.
const SIMPLE_LINE: u64 = 3;
const SIMPLE_BYTE: u64 = 2;

/// The maximum length of everything around the entries: style, scripts, a path of 4 KiB with links.
const FRAME: u64 = 256 << 10;
