package report

import (
	"fmt"
	"slices"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// Group is a rank's place in a group of jobs that share prepared batches (package share).
type Group struct {
	Name    string `json:"name"`
	Members int    `json:"members"` // that are open, with this one; some may take no batches now
	// State is idle (it takes no batches), gathering (it waits until the announced members have
	// come), attached (it is given the group's batches), or private (it prepares its own).
	State string `json:"state"`
	// Behind is how many samples more than this member the first one has taken of those that are
	// attached, if this one is attached or private.
	Behind int64 `json:"behind_samples"`
	// HeldUp is for how long others waited for this one, and Detached how often it was detached for
	// that.
	HeldUp   float64 `json:"held_up_seconds"`
	Detached int     `json:"detached"`
}

// InGroup reports whether the job is a member of a group.
func (r *Report) InGroup() bool {
	return slices.ContainsFunc(r.Ranks, func(rank RankReport) bool { return rank.Group != nil })
}

// fromSource describes how much was read from the source for the job, compared with the minimum.
// For a member of a group, there is none: what its group's own job reads counts for that.
func (r *Report) fromSource() string {
	if !r.InGroup() {
		return fromSource(r.Source.Bytes, r.BoundShare, r.Bound, r.Classes, together(r.positions()))
	}
	return ofMember(r.Source.Bytes)
}

// fromSource is Report.fromSource over all nodes.
func (c *ClusterReport) fromSource(at []Position) string {
	for _, n := range c.Nodes {
		if slices.ContainsFunc(n.Ranks, func(r RankTally) bool { return r.Group != nil }) {
			return ofMember(c.Total.Source.Bytes)
		}
	}
	return fromSource(c.Total.Source.Bytes, c.BoundShare, c.Bound, c.Classes, together(at))
}

func ofMember(bytes int64) string {
	read := "Nothing was"
	if bytes > 0 {
		read = human.Format(bytes) + " were"
	}
	return " " + read + " read from the source for this job alone; what its group reads is in the " +
		"report of the group's own job (hdmlp stats)."
}

// shared describes the group of the first rank that is in one.
func shared(ranks []RankReport) (text string) {
	for _, r := range ranks {
		g := r.Group
		if g == nil {
			continue
		}
		others, name := plural(g.Members-1, "other job"), human.Name(g.Name)
		switch g.State {
		case "attached":
			text = fmt.Sprintf(" It shares prepared batches with %s (group %s)", others, name)
			if g.Behind > 0 {
				text += fmt.Sprintf(", %s behind the first", plural(int(g.Behind), "sample"))
			}
		case "gathering":
			text = fmt.Sprintf(" It waits for more jobs of group %s: %s came", name, others)
		case "private":
			text = fmt.Sprintf(" It prepares its batches itself, as it is not where group %s is, "+
				"with %s", name, others)
		default:
			text = fmt.Sprintf(" It is in group %s with %s, and takes no batches", name, others)
		}
		text += "."
		if g.HeldUp >= 0.1 {
			text += fmt.Sprintf(" The others waited %.1f s for it", g.HeldUp)
			if g.Detached > 0 {
				text += fmt.Sprintf(", and went on without it %s", plural(g.Detached, "time"))
			}
			text += "."
		}
		return text
	}
	return ""
}
