package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model"
)

// worst returns the cause of the largest part of a stall, and that part.
func worst(stall map[string]float64) (cause string, most float64) {
	for c, s := range stall {
		if s > most || (s == most && c < cause) {
			cause, most = c, s
		}
	}
	return cause, most
}

// blame names the main cause of a stall, as the end of a clause. It is empty if no cause dominates.
func blame(stall map[string]float64) string {
	var all float64
	for _, s := range stall {
		all += s
	}
	cause, most := worst(stall)
	if most <= 0.05*all || all <= 0.001 {
		return ""
	}
	return fmt.Sprintf("; %.0f %% of the wait was for %s", 100*most/all, causeText(cause))
}

// fromSource states how much was read from the source, compared with the bound. whole reports
// whether all ranks have ended the same epoch.
func fromSource(bytes int64, share float64, bound int64, classes []Class, whole bool) string {
	read, least := human.Format(bytes), human.Format(bound)
	switch {
	case bytes == 0:
		return " Nothing was read from the source."
	case share >= 1:
		return fmt.Sprintf(" %s were read from the source, %.2f times the minimum for these "+
			"caches (%s).", read, share, least)
	case warm(classes):
		return fmt.Sprintf(" %s were read from the source, %.2f times the minimum for these "+
			"caches if they are empty at first (%s).", read, share, least)
	case !whole:
		return fmt.Sprintf(" %s were read from the source so far; with these caches, the epochs "+
			"begun take about %s or more.", read, least)
	case share >= minStagedShare:
		return fmt.Sprintf(" %s were read from the source, about the minimum for these caches (%s).",
			read, least)
	}
	return fmt.Sprintf(" %s were read from the source, %.2f times the minimum for these caches if "+
		"all ranks go through the epochs together (%s).", read, share, least)
}

// minStagedShare is the least share of the bound that what is staged across the ends of epochs
// explains.
const minStagedShare = 0.95

// warm reports whether caches held samples when the job began.
func warm(classes []Class) bool {
	return slices.ContainsFunc(classes, func(c Class) bool { return c.Held.Bytes > 0 })
}

// directly states how much of that was read although a cache has it. It is empty if that is little.
func directly(direct, all int64) string {
	if direct*100 <= all {
		return ""
	}
	return fmt.Sprintf(" %s of these were read although a cache has them: the storage class, or the "+
		"node that has them, would not have delivered them as soon, or did not respond.",
		human.Format(direct))
}

// minTimeShare is the share of the least runtime that no error of measurements explains.
const minTimeShare = 0.8

// here is where a node's own report says that a runtime is possible.
const here = "this machine"

// ofTime describes how the runtime compares with its lower bound, for a job with these classes and
// a node of which this is known (nil: nothing); "" if there is no bound. A run that begins with
// empty caches cannot be faster than that; if it is, numbers that the user has given are wrong.
func (b *Bounds) ofTime(classes []Class, known *model.Node, where string) string {
	bound, share := b.TimeBound, b.TimeShare
	if bound <= 0 {
		return ""
	}
	empty := ""
	if share < 1 && warm(classes) {
		empty = " if caches are empty at first"
	}
	if given := givenOf(known); share < minTimeShare && empty == "" && given != "" {
		return fmt.Sprintf(" The runtime was %.3g s, but with what the configuration gives of the "+
			"machine (%s) it would be at least %.3g s: these numbers are wrong.", share*bound, given,
			bound)
	}
	if share < 1 && empty == "" {
		return fmt.Sprintf(" The runtime, %.3f s, was about the least possible on %s: "+
			"%.3f s by what was measured.", share*bound, where, bound)
	}
	return fmt.Sprintf(" The runtime was %.2f times the least possible on %s%s, %.3f s.",
		share, where, empty, bound)
}

// givenOf lists the keys of the numbers that the user has given.
func givenOf(n *model.Node) string {
	var keys []string
	add := func(key string, o model.Origin) {
		if o == model.Given {
			keys = append(keys, key)
		}
	}
	if n == nil {
		return ""
	}
	add("compute", n.Compute.Origin)
	add("preprocess", n.Preprocess.Origin)
	add("network", n.Network.Origin)
	add("source_network", n.SourceNetwork.Origin)
	add("source", n.Source.Origin)
	for _, c := range n.Classes {
		add("read of class "+c.Name, c.Read.Origin)
		add("write of class "+c.Name, c.Write.Origin)
	}
	return strings.Join(keys, ", ")
}

// unreadable states how many samples could not be delivered. It is empty if there are none.
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
	case Writeback:
		return "samples that wait in memory to be written to a storage class"
	case "consumer":
		return "space in the staging buffer, because the process keeps its batches"
	case "group":
		return "space in the group's window, because a member of the group had not taken its " +
			"batches, or keeps them"
	case "handover":
		return "the transfer of finished batches to the process"
	case Python:
		return "Python code that makes batches (transforms, collate_fn): increase num_workers, " +
			"or use transforms that the daemon can run"
	}
	if name, ok := strings.CutPrefix(cause, "transform "); ok {
		return "the transform " + name
	}
	return "storage class " + cause
}
