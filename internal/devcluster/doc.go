// Package devcluster makes several nodes of one machine, for development and
// tests, and runs a command on each.
//
// A node is a network namespace, joined by a veth pair to a bridge that has a
// namespace of its own; a [Link] is such a pair, and can be slow, far away or
// cut. Without the privileges that takes a node is a loopback address, and
// there are no links.
//
// # What is left behind: nothing
//
// Namespaces have no names and are not mounted anywhere: each belongs to a
// thread of this process (see thread), and goes, with its links, when the last
// process in it has. What belongs to a run is therefore only processes, which
// are recognised by their network namespace or by their TORCHELASTIC_RUN_ID.
// [Cluster.Close] ends them. Where it has no chance to run, the ranks are ended
// by the kernel (PDEATHSIG), what they left by [Reap], or by the next [New].
//
// The machine's own network, routes and firewall are never touched.
//
// # Concurrency
//
// All methods may be called from several goroutines. Every goroutine belongs to
// a Cluster, and has ended when Close returns.
//
// The package does not know what it runs: neither HDMLP's daemon nor Python.
package devcluster
