package source

import (
	"context"
	"io"
)

// Exchange passes indexes between the nodes of a job, so that one of them, node 0, finds the
// samples of a dataset for all. It is for kinds that find them by many requests to a place which
// all nodes read (Kind.Exchanged). Its methods are safe for concurrent use.
type Exchange interface {
	// Makes reports whether this node is the one that makes the indexes.
	Makes() bool
	// Offer makes known, on that node, that it opens the dataset of this name, which has that many
	// objects. The name is a hash of all that the index depends on besides the objects themselves. An
	// error means that the other nodes cannot reach this one; it is logged once, and then the offer
	// is nil.
	Offer(name [16]byte, objects int) (Offer, error)
	// Receive waits, on another node, until that node has the index, and returns it, with its size in
	// bytes. progress is called with how many of the objects that node has looked through; of is 0
	// until it has begun. After an error other than ctx's, this node makes the index.
	Receive(ctx context.Context, name [16]byte, progress func(done, of int)) (
		index io.ReadCloser, size int64, err error)
}

// Offer is an index that other nodes wait for.
type Offer interface {
	// Step notes that one more object has been looked through.
	Step()
	// Ready gives the index to the nodes that want it, and to those that come later.
	Ready(x *Index)
	// Failed notes why there is no index.
	Failed(why error)
}
