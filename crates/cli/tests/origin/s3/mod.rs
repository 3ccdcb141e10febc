//! Object stores: versitygw where it is installed, and one of our own that follows a script.

mod doctor;
mod folders;
mod get;
mod keys;
mod put;
mod readme;
mod serve;
mod store;
