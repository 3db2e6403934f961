// Package scale measures how what the nodes of a job send each other grows with their number: in a
// network in memory and in virtual time, without data. It runs the real coordinators, with cluster,
// failure detection and a circuit breaker per node; what they say of their jobs is made up, in the
// size of real reports. No samples are read or served. For tests only.
//
// It also measures the memory of nodes that share a process, and what node 0 needs besides what
// every node needs: by the functions that have allocated it, which run on node 0 alone
// (footprint.go).
package scale
