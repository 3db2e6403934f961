package stage

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/source"
)

// TestConflictsAreNotForgiven checks that no policy leaves out a sample of which two nodes have
// read different bytes.
func TestConflictsAreNotForgiven(t *testing.T) {
	for _, policy := range []Policy{Raise, Skip, Substitute} {
		if newUnusable(policy).Forgive(1, &cache.ConflictError{Sample: 1}, true) == nil {
			t.Errorf("policy %s forgives a conflict", policy)
		}
	}
}

// TestLongReasonsAreCut checks that what is sent to other nodes about a sample is bounded, and
// valid text; and that it is sent once there is something.
func TestLongReasonsAreCut(t *testing.T) {
	u := newUnusable(Skip)
	found, upTo, more := u.Own(0)
	if len(found) != 0 || upTo != 0 {
		t.Fatalf("told are %+v up to %d", found, upTo)
	}
	select {
	case <-more:
		t.Error("there is more")
	default:
	}
	u.Report(3, "/source/3", strings.Repeat("é", mostReason))
	<-more
	found, upTo, _ = u.Own(upTo)
	if upTo != 1 || len(found) != 1 || found[0].Sample != 3 || len(found[0].Reason) > mostReason ||
		!utf8.ValidString(found[0].Reason) {
		t.Errorf("told are %+v up to %d", found, upTo)
	}
}

// TestManyFaultsAreToldInParts checks the bound of a list.
func TestManyFaultsAreToldInParts(t *testing.T) {
	f := newUnusable(Skip)
	for id := range 2*mostFound + 1 {
		_ = f.Forgive(id, &source.SampleError{ID: id, Path: "p", Kind: source.ErrMissing}, true)
	}
	told := 0
	for _, want := range []int{mostFound, mostFound, 1} {
		list, upTo, more := f.Own(told)
		if len(list) != want || upTo != told+want || list[0].Sample != told {
			t.Fatalf("%d samples up to %d after %d; want %d", len(list), upTo, told, want)
		}
		if want == mostFound {
			<-more
		}
		told = upTo
	}
}

// TestListsFitIntoAMessage: a list with the longest paths and reasons, of bytes that JSON has to
// escape, is smaller than what nodes may send each other at once.
func TestListsFitIntoAMessage(t *testing.T) {
	u := newUnusable(Skip)
	for id := range mostFound {
		u.Report(id, strings.Repeat("\x01", 4096), strings.Repeat("\x01", mostReason))
	}
	found, upTo, _ := u.Own(0)
	text, err := json.Marshal(found)
	if err != nil || upTo != mostFound || len(text) > 4<<20 {
		t.Errorf("%d samples are %d bytes, %v", upTo, len(text), err)
	}
}
