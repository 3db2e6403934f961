package records

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/source/formats"
)

// The index of what is at a URL is passed between the nodes of a job: node 0 offers what it opens,
// from before it looks for an index until it has one, and the other nodes ask for it before they
// make theirs. They do not hold the lock of their journal meanwhile: node 0 may keep its indexes in
// the same directory, and wait for that lock.
//
// A node uses what it was sent as it uses an index file that it was given: it is decoded as
// untrusted input, must be made of the same objects with the same options, and is compared with the
// versions of the objects as this node sees them.

// exchange returns what indexes are passed by; nil: this one is not.
func (x *opening) exchange() source.Exchange {
	if x.directory != nil || !x.kept() {
		return nil
	}
	return x.options.Exchange
}

// beginOffer makes known to other nodes that this one opens the dataset, if it makes the indexes.
func (x *opening) beginOffer() {
	e := x.exchange()
	if e == nil || !e.Makes() {
		return
	}
	var err error
	if x.offer, err = e.Offer(x.offered(), len(x.names)); err != nil {
		x.options.Tell(fmt.Sprintf("%s: the other nodes of the job make the index themselves, because "+
			"they cannot get it from this one: %v", x.path, err))
	}
}

// endOffer gives other nodes the index, or the reason why there is none.
func (x *opening) endOffer(err error) {
	switch {
	case x.offer == nil:
	case err != nil:
		x.offer.Failed(err)
	default:
		x.offer.Ready(x.known)
	}
}

// offered returns the name by which an index is passed.
func (x *opening) offered() [16]byte {
	return xxh3.HashString128(strings.Join(append(x.made(), x.path), "\x00")).Bytes()
}

// receive returns the index that another node has made; nil: this node makes it.
func (x *opening) receive(ctx context.Context) (*source.Index, error) {
	e := x.exchange()
	if e == nil || e.Makes() || x.rescans() {
		return nil, nil
	}
	found, err := x.received(ctx, e)
	if err == nil {
		same := false
		if same, err = x.same(ctx, found); err == nil && !same {
			err = errors.New("it is of other versions of the shards than this node sees")
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		x.options.Tell(fmt.Sprintf("%s: this node makes the index itself; that of node 0 cannot be "+
			"used: %v", x.path, err))
		return nil, nil
	}
	return found, nil
}

func (x *opening) received(ctx context.Context, e source.Exchange) (*source.Index, error) {
	limit := int64(math.MaxInt64)
	if x.memory != nil {
		available, err := x.memory()
		if err != nil {
			return nil, err
		}
		limit = available / receivedShare
	}
	r, size, err := e.Receive(ctx, x.offered(), func(done, of int) {
		if x.options.Await == nil {
			return
		}
		text := "waiting for node 0's index"
		if of > 0 {
			text += fmt.Sprintf(": %d of %d shards", done, of)
		}
		x.options.Await(text)
	})
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	found, err := source.DecodeWithin(r, size, limit)
	if err == nil && !slices.Equal(found.Extensions(), x.made()) {
		err = errors.New("it was made of other shards or with other options")
	}
	return found, err
}

// receivedShare is the divisor of the available memory that an index of another node may take.
const receivedShare = 4

// stepping is what is kept while an index is made that other nodes wait for: it tells them how far
// this one is.
type stepping struct {
	formats.Kept // nil: nothing is kept
	offer        source.Offer
}

// Found implements formats.Kept.
func (s stepping) Found(o *source.Object) []byte {
	if s.Kept == nil {
		return nil
	}
	data := s.Kept.Found(o)
	if data != nil {
		s.offer.Step()
	}
	return data
}

// Keep implements formats.Kept.
func (s stepping) Keep(o *source.Object, found []byte) {
	if s.Kept != nil {
		s.Kept.Keep(o, found)
	}
	s.offer.Step()
}
