//! All tests of object sets in one program: each of its own would compile the same futures anew.

mod model;
mod objects;
mod parallel;
mod send;
mod support;
mod walk;
