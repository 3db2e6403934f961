// Package node manages the jobs of a node, a machine or a part of one: it finds them by name, lets
// ranks open and join them, and holds the catalog of the datasets that they share. It puts a job
// together (the agreement with other nodes, the order, the memory claim, the cache of the dataset,
// the transforms and the plan: assembly.go), and takes it apart.
//
// All methods of Node and Rank are safe for concurrent use.
package node
