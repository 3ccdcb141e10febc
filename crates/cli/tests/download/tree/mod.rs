//! `underpass get -r`: whole folders, from our own server and from others, with interruptions.

mod archive;
mod hostile;
mod listings;
mod resume;
mod site;
