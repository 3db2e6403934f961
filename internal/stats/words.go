package stats

import (
	"fmt"
	"strings"

	"github.com/hdmlp/hdmlp/internal/size"
)

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
	return fmt.Sprintf(" %s left the source, %.2f times the least that these caches allow (%s).",
		size.Format(bytes), share, size.Format(bound))
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
	case Python:
		return "Python's part of making batches (transforms, collate_fn): give num_workers more " +
			"processes, or use transforms that the daemon carries out"
	}
	if name, ok := strings.CutPrefix(cause, "transform "); ok {
		return "the transform " + name
	}
	return "storage class " + cause
}
