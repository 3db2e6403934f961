package order

import (
	"errors"
	"fmt"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// Apart is a key in the Details of errors after which each rank may read apart: by itself, in a job
// of its own.
const Apart = "apart"

// Unformed converts the error of nodes that could not form a cluster. Unless the error says that
// the nodes differ, ranks may still read apart.
func (p *Turns) Unformed(err error) error {
	var e *failure.Error
	if p == nil || !errors.As(err, &e) || e.Kind != failure.Config {
		return err
	}
	return readApart("%s", e.Message)
}

// regular returns why the parts of turn 0 do not make an order that can be shared, so that each
// rank must read apart; nil if they do. all is ordered by rank.
func (p *Turns) regular(all []*request.Part) error {
	if err := withoutPart(all); err != nil {
		return err
	}
	first := all[0]
	for _, x := range all {
		switch {
		case x.Entries < 1 || x.Batch < 1:
			return readApart("rank %d has no samples in epoch %d", x.Rank, x.Epoch)
		case x.Epoch != first.Epoch:
			return readApart("rank %d begins with epoch %d, and rank %d with epoch %d",
				x.Rank, x.Epoch, first.Rank, first.Epoch)
		case x.Batch != first.Batch:
			return readApart("rank %d has batches of %d samples, and rank %d of %d",
				x.Rank, x.Batch, first.Rank, first.Batch)
		case x.Entries != first.Entries:
			return readApart("rank %d has %d samples in epoch %d, and rank %d has %d",
				x.Rank, x.Entries, x.Epoch, first.Rank, first.Entries)
		}
	}
	return nil
}

// agree returns why the parts of a later turn do not make an epoch of entries samples per rank; nil
// if they do. If all ranks have the same other number of samples, they must read apart; if ranks
// disagree, the error says so.
func (p *Turns) agree(all []*request.Part, entries int) error {
	if err := withoutPart(all); err != nil {
		return err
	}
	first := all[0]
	if first.Epoch < p.last {
		return readApart("the ranks go back from epoch %d to epoch %d", p.last, first.Epoch)
	}
	differs := func(key string, x *request.Part, mine, theirs int, format string,
		args ...any,
	) error {
		return &failure.Error{
			Kind:    failure.Mismatch,
			Message: "the ranks disagree about the sampler: " + fmt.Sprintf(format, args...),
			Details: map[string]any{
				"key":     key,
				"mine":    mine,
				"theirs":  theirs,
				"epoch":   x.Epoch,
				"of_rank": x.Rank,
			},
		}
	}
	for _, x := range all {
		if x.Epoch != first.Epoch {
			return differs("epoch",
				x, x.Epoch, first.Epoch,
				"after epoch %d rank %d goes on with epoch %d, and rank %d with epoch %d", p.last,
				x.Rank, x.Epoch, first.Rank, first.Epoch)
		}
	}
	alike := true
	for _, x := range all {
		alike = alike && x.Entries == first.Entries
	}
	for _, x := range all {
		if !alike && x.Entries != entries {
			return differs("samples of an epoch",
				x, x.Entries, entries, "rank %d ends epoch %d at index %d, and the part of each "+
					"rank had %d samples until then", x.Rank, x.Epoch, x.Entries, entries)
		}
	}
	if first.Entries != entries {
		return readApart("epoch %d has %d samples on each rank, and had %d before",
			first.Epoch, first.Entries, entries)
	}
	return nil
}

// withoutPart returns an error if a rank has not given a part.
func withoutPart(all []*request.Part) error {
	epoch := 0
	for _, x := range all {
		epoch = max(epoch, x.Epoch)
	}
	for _, x := range all {
		if x.Left {
			return lost(epoch, fmt.Sprintf("rank %d has left the job", x.Rank),
				map[string]any{"of_rank": x.Rank})
		}
	}
	for _, x := range all {
		if x.Apart != "" {
			return readApart("rank %d: %s", x.Rank, x.Apart)
		}
	}
	return nil
}

// lost returns the error for an epoch of which a part will never be given.
func lost(epoch int, why string, details map[string]any) error {
	details["key"], details["epoch"] = "the order of an epoch", epoch
	return &failure.Error{
		Kind: failure.Mismatch, Details: details,
		Message: fmt.Sprintf("the order of epoch %d cannot be determined: %s without giving its "+
			"part of it; restart all ranks", epoch, why),
	}
}

// readApart returns an error after which each rank reads by itself.
func readApart(format string, args ...any) error {
	return &failure.Error{
		Kind: failure.Config, Message: "the nodes cannot exchange the order that the ranks' " +
			"samplers draw: " + fmt.Sprintf(format, args...),
		Details: map[string]any{Apart: true},
	}
}
