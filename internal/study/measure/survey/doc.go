// Package survey measures a machine for a dataset, as far as the performance model describes it:
// the source by the sizes of samples and the number of streams, the storage classes, transforms,
// and, on several nodes, the source by the number of nodes and the network. Package measure has
// the loops, the loads (source.go and others) and links.go what they measure; survey.go divides
// the time, and makes of the results what the model has of a node (model.Node). What cannot be
// measured is skipped, and the result has the reason.
//
// A load belongs to one measurement at a time. Nothing here starts a goroutine that outlives the
// call, except for reads of a source that never return, and a Group's.
//
// On several nodes, what all do at the same time is measured: reads of the source (t(gamma)), and
// transfers between neighbours (b_c). All nodes carry out the same steps in the same order, and
// meet before each (Together). A node that fails leaves, and the others learn of it at their next
// meeting. A Group owns the goroutine that serves the other nodes; Close ends it.
package survey
