// Package crashtest simulates power failures for tests of code that keeps state in files.
//
// A Recorder performs the operations of the code under test on a real directory, and records those
// that change something. Explore then creates what a disk may hold after a power failure at each
// point of the recording, and lets a test open it with the real code.
//
// # What a power failure may leave
//
// The model is that of ALICE (Pillai et al., OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018),
// for a file system like ext4 with data=writeback on a disk that reorders writes. It permits more
// than most file systems do. Pending is what no sync has made durable; of it, any subset is kept,
// whatever the order of the operations:
//
//   - Data: a write consists of sectors of 512 bytes. Each is on the disk as it was in memory after
//     one of the writes to it, or before all.
//   - Sizes: the size that a write gives a file is kept or lost apart from the data, for each page
//     of 4096 bytes; so is that of a truncation.
//   - Former contents: where a file was never written, or what was written is lost, it shows a
//     hole, zeros, or what another file that was removed or cut had there, with valid checksums.
//   - Entries: a name that was created, removed or renamed. A rename is kept or lost as a whole,
//     and needs no earlier creation to be kept. With the entry of a directory, all in it is lost.
//
// A sync makes durable what it was called on before, and nothing else: that of a file its data and
// size, and not its name; that of a directory the names in it, and not what they name.
//
// Modes and times are not recorded. Disks that report a sync as done and lose it are not modelled.
package crashtest
