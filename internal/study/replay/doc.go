// Package replay runs a job that ran once more, in virtual time: with its own order and plan, what
// was measured of its machine, and the limits that were in force in each of its epochs. The job is
// made from the report of the one that ran (replay.go), which also has what is compared with the
// prediction.
//
// It does what the engine does, in the engine's steps: ranks lay out batches as far ahead as they
// may, workers of a node bring their samples in the order of their steps and fill classes when they
// have none, each read goes where routing.Choose sends it by what meters have seen of the reads
// before it, and a gate admits reads to the source. Devices, links and the source are queues, each
// with a rate. So it predicts where bytes come from in the first epoch, in which that depends on
// what is on its way, and how far ranks run apart. Package simulate, which compares policies on
// machines that need not exist, has nothing of that, and is much faster.
//
// It is pure: it reads no files, and starts no goroutines. It takes about 3 us for each sample that
// is read, and a byte of memory for each sample and node.
package replay
