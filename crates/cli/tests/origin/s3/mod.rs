//! Object stores: versitygw if it is installed, and a scripted one.

mod doctor;
mod folders;
mod get;
mod keys;
mod put;
mod readme;
mod serve;
mod store;
