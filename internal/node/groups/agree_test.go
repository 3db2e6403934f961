package groups

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// meetings plays the nodes of a job that speak to each other.
type meetings struct {
	mu    sync.Mutex
	said  map[string][][]byte
	all   map[string]chan struct{}
	nodes int
}

// nodeOf is one of them, as node.Nodes.
type nodeOf struct {
	*meetings
	me int
}

func (n nodeOf) Me() int { return n.me }

func (n nodeOf) Ranks() (ranks [][]int) {
	for k := range n.nodes {
		ranks = append(ranks, []int{k})
	}
	return ranks
}

func (n nodeOf) GatherInTime(ctx context.Context, what string, mine []byte) ([][]byte, error) {
	n.mu.Lock()
	if n.said[what] == nil {
		n.said[what], n.all[what] = make([][]byte, n.nodes), make(chan struct{})
	}
	n.said[what][n.me] = mine
	missing := 0
	for _, text := range n.said[what] {
		if text == nil {
			missing++
		}
	}
	if missing == 0 {
		close(n.all[what])
	}
	said, all := n.said[what], n.all[what]
	n.mu.Unlock()
	select {
	case <-all:
		return said, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Minute):
		return nil, errors.New("a node did not answer")
	}
}

// party is a job over two nodes that enters a group on both.
type party struct {
	jobs  [2]node.Membership
	errs  [2]error
	ended [2]int // how often the opener was released
}

// come has a job enter on the nodes that have a lab, and agree with its opener.
func come(t *testing.T, job string, labs [2]*Groups, open node.Opener) *party {
	t.Helper()
	p := new(party)
	met := &meetings{said: map[string][][]byte{}, all: map[string]chan struct{}{}, nodes: 2}
	w := &world{t: t, nodes: make([]*node.Node, 2)}
	var agreeing sync.WaitGroup
	for k, groups := range labs {
		m := w.request(1, k, 1)
		m.Job = job
		s := request.Said{
			Open:   &m,
			Config: &config.Config{Share: "s", Policy: "cooperative"},
			Order:  &request.Order{Digest: "none"},
		}
		s.Config.Origins = map[string]config.Origin{"share": {Source: "argument"}}
		if p.jobs[k], p.errs[k] = groups.Enter(t.Context(), s); p.errs[k] != nil {
			continue
		}
		team := node.Team{
			Nodes: nodeOf{met, k}, Seed: 7, Empties: func(int) bool { return false },
		}
		agreeing.Go(func() {
			p.errs[k] = p.jobs[k].Agree(t.Context(), team, open, func() { p.ended[k]++ })
		})
	}
	agreeing.Wait()
	return p
}

// id returns the group that the job is in on both nodes.
func (p *party) id(t *testing.T) string {
	t.Helper()
	a, b := p.jobs[0].(*membership), p.jobs[1].(*membership)
	if err := errors.Join(p.errs[:]...); err != nil {
		t.Fatal(err)
	}
	if a.group.team.id != b.group.team.id {
		t.Errorf("it is in group %s and %s", a.group.team.id, b.group.team.id)
	}
	return a.group.team.id
}

func (p *party) leave() {
	for _, of := range p.jobs {
		of.Leave()
	}
}

// TestJobsOfSeveralNodesAgree with producers that listen and then wait, or cannot be opened.
func TestJobsOfSeveralNodesAgree(t *testing.T) {
	broken := errors.New("no memory")
	fails := func(context.Context, request.Open, func(net.Addr)) (*node.Rank, error) {
		return nil, broken
	}
	var mu sync.Mutex // guards the following
	var opened []string
	waits := func(ctx context.Context, m request.Open, listening func(net.Addr)) (*node.Rank, error) {
		mu.Lock()
		opened = append(opened, fmt.Sprintf("%s on %d at %s with %.4s", m.Job, m.Cluster.Node,
			m.Cluster.Address, m.Cluster.Secret))
		mu.Unlock()
		if m.Cluster.Node == 0 {
			listening(&net.TCPAddr{Port: 4242})
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, run := range map[string]func(t *testing.T, labs [2]*Groups){
		"the first founds a group, and the next ones join": func(t *testing.T, labs [2]*Groups) {
			a, b := come(t, "a", labs, waits), come(t, "b", labs, waits)
			if one, two := a.id(t), b.id(t); one != two {
				t.Errorf("they are in groups %s and %s", one, two)
			}
			synctest.Wait()
			if len(opened) != 2 {
				t.Fatalf("opened %q", opened)
			}
			at := map[bool]string{true: ":0", false: ":4242"}
			for _, o := range opened {
				_, secret, _ := strings.Cut(opened[0], " with ")
				if !strings.Contains(o, "share s@"+a.id(t)) || !strings.HasSuffix(o, secret) ||
					!strings.Contains(o, at[strings.Contains(o, "on 0")]) {
					t.Errorf("opened %q", opened)
				}
			}
			if b.ended != [2]int{1, 1} {
				t.Errorf("what it does not need was released %v times", b.ended)
			}
			a.leave()
			b.leave()
			if a.ended != [2]int{1, 1} {
				t.Errorf("what it needs no more was released %v times", a.ended)
			}
		},
		"one that has ended on a node is followed by another": func(t *testing.T, labs [2]*Groups) {
			for gone := range 2 {
				a := come(t, "a", labs, waits)
				old := a.id(t)
				a.jobs[gone].Leave()
				b, c := come(t, "b", labs, waits), come(t, "c", labs, waits)
				if b.id(t) == old || c.id(t) != b.id(t) {
					t.Errorf("groups %s, then %s and %s", old, b.id(t), c.id(t))
				}
				a.leave()
				b.leave()
				d := come(t, "d", labs, waits)
				if d.id(t) != c.id(t) {
					t.Errorf("groups %s and %s", c.id(t), d.id(t))
				}
				c.leave()
				d.leave()
			}
		},
		"members go alone if it cannot be opened, and the next founds another": func(
			t *testing.T, labs [2]*Groups,
		) {
			a := come(t, "a", labs, fails)
			first := a.id(t)
			for k, of := range a.jobs {
				_, err := of.(*membership).group.team.rank(t.Context(), "s", k)
				if !errors.As(err, &node.Alone{}) || !strings.Contains(err.Error(), "no memory") {
					t.Error(err)
				}
			}
			b := come(t, "b", labs, waits)
			if b.id(t) == first {
				t.Error("it joined a group that cannot be opened")
			}
			a.leave()
			b.leave()
			if a.ended != [2]int{1, 1} || b.ended != [2]int{1, 1} {
				t.Errorf("released %v and %v times", a.ended, b.ended)
			}
		},
		"a refusal is every node's": func(t *testing.T, labs [2]*Groups) {
			m := (&world{}).request(0, 0, 1)
			m.WorldSize = 1
			for k, groups := range labs {
				s := request.Said{
					Open:   &m,
					Config: &config.Config{Share: "s"}, Order: &request.Order{Digest: "none"},
				}
				s.Config.Origins = map[string]config.Origin{"share": {Source: "argument"}}
				single, err := groups.Enter(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				a := come(t, "a", labs, waits)
				for _, err := range a.errs {
					if err == nil || !strings.Contains(err.Error(), "world_size is 2 in this job") {
						t.Errorf("node %d has a group of one node: %v", k, err)
					}
				}
				a.leave()
				single.Leave()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opened = nil
				one, two := newGroups(), newGroups()
				run(t, [2]*Groups{one, two})
				for k, g := range []*Groups{one, two} {
					for name := range g.all {
						t.Errorf("node %d: group %s is left", k, name)
					}
				}
			})
		})
	}
}
