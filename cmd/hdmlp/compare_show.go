package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/study/compare"
)

// compareBar shows the progress of a policy's run on a terminal. The zero value shows nothing.
type compareBar struct {
	line *liveLine
	done atomic.Pointer[func() int64] // steps; nil: the nodes start
}

// bar shows the progress of a policy, number of so many.
func (c *comparing) bar(name string, number, of int) *compareBar {
	b := new(compareBar)
	if c.progress == nil {
		return b
	}
	begun, part := time.Now(), c.kept.Samples
	global := c.batch * c.nodes
	steps := int64((part+global-1)/global) * int64(c.epochs)
	b.line = showLine(c.progress, func(columns int) string {
		before := fmt.Sprintf("%d of %d  %s  ", number, of, name)
		done, after := int64(0), " "+clock(time.Since(begun))+"  starting"
		if load := b.done.Load(); load != nil {
			if done = (*load)(); done > 0 {
				epoch := min(int(done/max(steps/int64(c.epochs), 1))+1, c.epochs)
				after = fmt.Sprintf(" %s  epoch %d of %d", clock(time.Since(begun)), epoch, c.epochs)
			}
		}
		return before + rule(done, steps, 20, columns, before, after) + after
	})
	return b
}

// watch takes the number of steps from done.
func (b *compareBar) watch(done func() int64) { b.done.Store(&done) }

// close removes the bar.
func (b *compareBar) close() {
	if b.line != nil {
		b.line.close(false)
		b.line = nil
	}
}

// roughly formats a time in seconds that is not known well.
func roughly(s float64) string {
	if s < 120 {
		return fmt.Sprintf("%.0f s", max(s, 1))
	}
	return human.Clock(s)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// facts describe what was compared.
func (c *comparing) facts(r *compare.Comparison) (all []compare.Fact) {
	add := func(name, format string, values ...any) {
		all = append(all, compare.Fact{Name: name, Value: fmt.Sprintf(format, values...)})
	}
	add("dataset", "%s, version %s", human.Name(c.root), r.Settings.Version[:shortVersion])
	part := "all"
	if r.Samples < r.Of {
		part = fmt.Sprintf("of %s, %s, drawn at random", thousands(r.Of), human.Bytes(r.OfMB))
	}
	add("samples", "%s, %s, %s", thousands(r.Samples), human.Bytes(r.MB), part)
	add("job", "%s, batches of %s, %s, %s", count(c.epochs, "epoch"),
		count(c.batch, "sample")+" a rank", count(c.nodes, "rank"), c.consumer())
	if c.transforms != "" {
		add("transforms", "%s", human.Name(c.transforms))
	}
	if c.nodes > 1 {
		links := "links of " + r.Settings.Rate
		if c.link.Rate == 0 {
			links = "links without a limit"
		}
		add("nodes", "%d on this machine (%s), %s", c.nodes, c.kept.Network, links)
	}
	limit := "not limited"
	if c.sourceMBps > 0 {
		limit = fmt.Sprintf("limited to %.4g MB/s for all nodes together", c.sourceMBps)
	}
	add("source", "%s; %s", limit, pagesOf(r))
	add("caches", "%s", c.caches())
	return all
}

func (c *comparing) consumer() string {
	if c.stepTime == 0 {
		return "which take batches as fast as they come"
	}
	return fmt.Sprintf("which compute %v on a batch", c.stepTime)
}

// pagesOf describes what is known of the page cache.
func pagesOf(r *compare.Comparison) string {
	reads, worst := 0, 0.0
	for _, row := range r.Rows {
		if row.Measured != nil {
			reads++
			worst = max(worst, row.Measured.Cached)
			if row.Measured.Cached < 0 {
				return "this machine keeps no pages of it"
			}
		}
	}
	switch {
	case reads == 0:
		return "page cache: nothing was read"
	case worst > 0:
		return fmt.Sprintf("page cache: up to %s of the reads could not bypass it (a file system in "+
			"memory, or files in use), and are faster than the source", human.Percent(worst))
	}
	return "page cache: bypassed, samples are dropped from it before each read"
}

// caches describes the caches of a node.
func (c *comparing) caches() string {
	var texts []string
	for j, mb := range c.work.Capacity {
		what := "memory"
		if c.work.Disks[j] {
			what = "disk"
		}
		text := what + " of " + human.Bytes(mb)
		if c.share < 1 {
			text = fmt.Sprintf("%s of %s (%s for the whole dataset)", what, human.Bytes(mb*c.share),
				human.Bytes(mb))
		}
		texts = append(texts, text)
	}
	if texts == nil {
		return "none"
	}
	return strings.Join(texts, ", ") + ", a node; empty before each policy"
}
