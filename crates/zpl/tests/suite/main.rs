//! Tests of files on object sets and pools in one program: each of its own would compile the engine's futures anew.

mod clones;
mod common;
mod environment;
mod model;
mod on_a_pool;
mod posix;
mod scale;
mod snapshots;
mod xattr;
