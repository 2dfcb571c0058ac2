//! All tests of the simulator and in it in one program: each of its own would compile the engine's futures anew.

mod crashes;
mod exchanged_names;
mod exchanges;
mod freeing;
mod full;
mod hosts;
mod images;
mod labels;
mod lives;
mod multihost;
mod old_copies;
mod open_members;
mod simulated_disk;
mod txgs;
