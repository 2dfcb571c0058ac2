//! Name/value lists (`module/nvpair/nvpair.c`, `include/sys/nvpair.h`): the format of labels, pool configurations,
//! history records and much else.
//!
//! An encoded list begins with four bytes: encoding (0 native, 1 XDR), byte order of the writer (1 little-endian), two
//! zeros. XDR is big-endian everywhere and what goes on disk; native is the writer's memory layout.
//!
//! True in this crate at all times:
//! - Pairs keep their order: encode writes them in the order in which they were added or read.
//! - Adding a name that is there replaces the pair and moves it to the end, as OpenZFS does for lists with unique
//!   names.
//! - Decoding takes memory in proportion to the input, nests at most [`MAX_DEPTH`] lists and never panics.
//! - Text is UTF-8 here. OpenZFS stores any bytes; what is not UTF-8 is read with U+FFFD in its place.
#![forbid(unsafe_code)]

mod codec;
mod error;
mod layout;
mod list;
mod native;
mod show;
mod types;
mod value;
mod xdr;

pub use error::Error;
pub use layout::{Endian, MAX_DEPTH, NV_UNIQUE_NAME, NV_UNIQUE_NAME_TYPE};
pub use types::{DataType, NvList, Value};
