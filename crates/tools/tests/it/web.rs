//! `web_fetch` against servers of its own.

mod fetching;
mod names;
mod vectors;
