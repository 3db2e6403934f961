package node

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/source"
)

// refused opens a job with a rank on every node, with the message changed for each, and returns the
// errors.
func (c *nodes) refused(change func(node int, m *request.Open)) []*failure.Error {
	c.t.Helper()
	told, address := make([]*failure.Error, len(c.list)), c.address()
	var all sync.WaitGroup
	for i, node := range c.list {
		all.Go(func() {
			m := message(i, len(c.list), onNodes(len(c.list), 1, address))
			change(i, &m)
			r, err := node.Open(c.t.Context(), m, nil, func(request.Step) {})
			if err == nil {
				c.t.Errorf("node %d: the job was opened", i)
				r.Close()
				err = errors.New("none")
			}
			told[i] = failure.Of(err)
		})
	}
	all.Wait()
	return told
}

// TestNodesWithOtherSeedsAreRefused checks that the error of every node names the key that differs,
// and the node, before anything is read.
func TestNodesWithOtherSeedsAreRefused(t *testing.T) {
	for name, seed := range map[string]*uint64{"another": new(uint64), "a drawn one": nil} {
		c := newNodes(t, 3, false)
		for i, e := range c.refused(func(node int, m *request.Open) {
			if node == 2 {
				m.Stream.Seed = seed
			}
		}) {
			if e.Kind != failure.Mismatch || e.Details["key"] != "seed" || e.Details["node"] != 2 {
				t.Errorf("%s: node %d is told %+v", name, i, e)
			}
		}
		if total, _ := c.read(); total != 0 {
			t.Errorf("%s: %d samples were read", name, total)
		}
		c.close()
	}
}

// TestNodesWithOtherContentsAreRefused checks that if files with the same names, sizes and times
// have other bytes on one node, the error of every node names that one.
func TestNodesWithOtherContentsAreRefused(t *testing.T) {
	c := newNodes(t, 3, false)
	c.worlds[2].contents = 1
	for i, e := range c.refused(func(int, *request.Open) {}) {
		if e.Kind != failure.Mismatch || e.Details["key"] != "dataset contents" ||
			e.Details["node"] != 2 || e.Details["sample"] != 0 {
			t.Errorf("node %d is told %+v", i, e)
		}
	}
	c.close()
}

// TestRanksThatSeeOtherFilesAreRefused checks that a rank in another container joins a job only if
// it sees the same dataset at the path. Neither the path nor the directory alone proves that: below
// another root directory symbolic links may lead elsewhere.
func TestRanksThatSeeOtherFilesAreRefused(t *testing.T) {
	opened := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	here := t.TempDir()
	there := t.TempDir()
	slash := "/"
	container := t.TempDir()
	for name, c := range map[string]struct {
		root, slash string
		files       string // what the rank sees; the first rank sees "data"
		joins       bool
		scans       int64 // how often the dataset is scanned for it
	}{
		"the same directory":                          {here, slash, "data", true, 0},
		"the same files in another directory":         {there, slash, "data", true, 1},
		"other files in another directory":            {there, slash, "more", false, 1},
		"the same directory from another root":        {here, container, "data", true, 1},
		"links from another root lead to other files": {here, container, "more", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var scans int64
			views := map[*os.File]string{}
			w := world{sees: func(v *source.View) string {
				scans++
				return views[v.Root]
			}}
			view := func(root, slash, files string) *source.View {
				v := &source.View{Root: opened(root), Slash: opened(slash)}
				views[v.Root] = files
				return v
			}
			n := w.node()
			first, err := n.Open(t.Context(), message(0, 2), view(here, slash, "data"),
				func(request.Step) {})
			if err != nil {
				t.Fatal(err)
			}
			before := scans
			second, err := n.Open(t.Context(), message(1, 2), view(c.root, c.slash, c.files),
				func(request.Step) {})
			if (err == nil) != c.joins || scans-before != c.scans {
				t.Errorf("got %v, after %d scans of the dataset", err, scans-before)
			}
			if err != nil {
				if e := failure.Of(err); e.Kind != failure.Mismatch ||
					e.Details["key"] != "dataset" || e.Details["mine"] == e.Details["theirs"] {
					t.Errorf("got %+v", e)
				}
				if want := "Only rank 1 is refused"; !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
				if _, err := take(first, at{0, 0}, at{1, 0}); err != nil {
					t.Errorf("the first rank's stream ended: %v", err)
				}
			} else {
				second.Close()
			}
			first.Close()
			w.close(t, n)
		})
	}
}
