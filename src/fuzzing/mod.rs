//! The decoders as the fuzz targets of `fuzz/` call them. Not a part of the library: it is there with the feature
//! `fuzzing` and in the library's own tests, and may change at any time.
//!
//! Each target is one function of arbitrary bytes. It panics where a property does not hold that docs/fuzzing.md names;
//! otherwise it says whether the decoder took the bytes, so that a corpus that reaches nothing is noticed. The tests here
//! run the same functions over the seeds in `fuzz/seeds` and over mutations of them.

mod gauge;
mod rpc;
#[cfg(test)]
mod tests;
mod token;

pub(crate) use gauge::within;

pub use gauge::{Gauge, Reached};

/// A target: input, and how memory is measured.
pub type Target = fn(&[u8], Gauge) -> Reached;

/// All targets, by the names of their programs and of their folders of seeds.
pub const TARGETS: [(&str, Target); 4] =
    [("rpc", rpc), ("token", token), ("record", record), ("journal", journal)];

/// The body of a request.
pub fn rpc(data: &[u8], gauge: Gauge) -> Reached {
    rpc::rpc(data, gauge)
}

/// A header `Authorization`, or what one is made of.
pub fn token(data: &[u8], gauge: Gauge) -> Reached {
    token::token(data, gauge)
}

/// A value of the tree.
pub fn record(data: &[u8], gauge: Gauge) -> Reached {
    crate::store::sled::fuzzing::record(data, gauge)
}

/// A journal.
pub fn journal(data: &[u8], gauge: Gauge) -> Reached {
    crate::store::sled::fuzzing::journal(data, gauge)
}
