// Package devcluster runs several nodes on one machine, for development and tests, and a command on
// each of them.
//
// A node is a network namespace, joined by a veth pair to a bridge in a namespace of its own. A
// [Link] is such a pair: it can have a limited rate or a delay, or be cut. Without the necessary
// privileges, a node is a loopback address, and there are no links.
//
// # Cleaning up
//
// Namespaces have no names and are not mounted anywhere: each belongs to a thread of this process
// (see thread), and is freed, with its links, when the last process in it ends. So only processes
// have to be cleaned up after a run. They are recognised by their network namespace or by their
// TORCHELASTIC_RUN_ID. [Cluster.Close] kills them. If it cannot run, the kernel kills the ranks
// (PDEATHSIG), and [Reap], or else the next [New], kills what they started.
//
// The machine's own network, routes and firewall are never changed.
//
// # Concurrency
//
// All methods may be called from several goroutines. Every goroutine belongs to a Cluster, and has
// ended when Close returns.
//
// The package does not depend on what it runs, neither on HDMLP's daemon nor on Python.
package devcluster
