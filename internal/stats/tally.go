// Package stats says what a running job tells of itself: what its ranks were given, where that came from, what they waited for, and how
// much of the least possible left the source; of a node (Report), and of all nodes (ClusterReport). It adds these up, and says in a
// sentence what they mean. As JSON they are what `hdmlp stats --json` prints and Python's report() returns.
//
// It is pure: values and arithmetic. Who runs the job fills them in (job), who shows them reads them (top, prometheus, the commands).
package stats

import (
	"fmt"
	"strings"

	"github.com/hdmlp/hdmlp/internal/config/size"
	"github.com/hdmlp/hdmlp/internal/prefetch"
)

// Tally counts what training loops were given, where it came from, and what they waited for.
type Tally struct {
	Batches int64                      `json:"batches"`
	Samples int64                      `json:"samples"`
	Seconds float64                    `json:"seconds"` // of epochs, as EpochReport.Seconds, summed over epochs and ranks
	Stall   map[string]float64         `json:"stall"`   // seconds of next(), by cause
	Reads   map[string]prefetch.Amount `json:"reads"`   // consumed samples by the place they were read from
	Source  prefetch.Amount            `json:"source"`  // what left the source; of nodes, filling of classes and reads for others included
}

// StallSeconds is the stall over all causes.
func (t *Tally) StallSeconds() (sum float64) {
	for _, s := range t.Stall {
		sum += s
	}
	return sum
}

// Utilisation is the share of Seconds in which next() was not blocked; 0 if there are none.
func (t *Tally) Utilisation() float64 {
	if t.Seconds <= 0 {
		return 0
	}
	return max(0, 1-t.StallSeconds()/t.Seconds)
}

// Add adds another tally, of other ranks, nodes or epochs.
func (t *Tally) Add(o *Tally) {
	if t.Stall == nil {
		t.Stall, t.Reads = map[string]float64{}, map[string]prefetch.Amount{}
	}
	t.Batches += o.Batches
	t.Samples += o.Samples
	t.Seconds += o.Seconds
	for cause, s := range o.Stall {
		t.Stall[cause] += s
	}
	for place, a := range o.Reads {
		sum := t.Reads[place]
		t.Reads[place] = prefetch.Amount{Samples: sum.Samples + a.Samples, Bytes: sum.Bytes + a.Bytes}
	}
	t.Source = prefetch.Amount{Samples: t.Source.Samples + o.Source.Samples, Bytes: t.Source.Bytes + o.Source.Bytes}
}

// worst is the cause of most of a stall.
func worst(stall map[string]float64) (cause string, most float64) {
	for c, s := range stall {
		if s > most || (s == most && c < cause) {
			cause, most = c, s
		}
	}
	return cause, most
}

// blame says what most of a stall was for, as the end of a clause; empty: nothing stands out.
func blame(stall map[string]float64) string {
	var all float64
	for _, s := range stall {
		all += s
	}
	cause, most := worst(stall)
	if most <= 0.05*all || all <= 0.001 {
		return ""
	}
	return fmt.Sprintf("; %.0f %% of the time was for %s", 100*most/all, causeText(cause))
}

// fromSource says how much left the source, against the bound.
func fromSource(bytes int64, share float64, bound int64) string {
	return fmt.Sprintf(" %s left the source, %.2f times the least that these caches allow (%s).", size.Format(bytes), share, size.Format(bound))
}

// unreadable says how many samples could not be given; empty: none.
func unreadable(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %s could not be read or transformed.", plural(n, "sample"))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if strings.HasSuffix(word, "tch") {
		word += "e"
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func causeText(cause string) string {
	switch cause {
	case "source":
		return "the source"
	case "peer":
		return "other nodes"
	case "consumer":
		return "room in the staging buffer, because the process keeps its batches"
	case "handover":
		return "batches that were ready: the way to the process"
	}
	if name, ok := strings.CutPrefix(cause, "transform "); ok {
		return "the transform " + name
	}
	return "storage class " + cause
}
