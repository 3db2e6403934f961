package groups

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/job"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// lab is groups whose producers a test opens, on one node.
type lab struct {
	*world
	groups *Groups
	member *node.Rank // of a job in no group, which becomes a member

	mu     sync.Mutex // guards the following
	opened []string   // the jobs that open was asked for
	fails  error      // why open fails; nil: it does not
	wait   chan struct{}
}

func newLab(t *testing.T) *lab {
	l := &lab{world: newWorld(t, 1, nil)}
	l.groups = l.world.groups[0]
	l.member = l.jobs(1, 1, alone)[0][0]
	return l
}

// alone is of a job in no group.
func alone(m *request.Open) { delete(m.Arguments, "share") }

// end closes what the lab has opened, and checks that nothing is left.
func (l *lab) end() {
	l.t.Helper()
	l.member.Close()
	l.close()
}

// open is a node.Opener.
func (l *lab) open(ctx context.Context, m request.Open, _ func(net.Addr)) (*node.Rank, error) {
	l.mu.Lock()
	l.opened = append(l.opened, m.Job)
	fails, wait := l.fails, l.wait
	l.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fails != nil {
		return nil, fails
	}
	alone(&m)
	return l.nodes[0].Open(ctx, m, nil, func(request.Step) {})
}

// enter enters a group, as a new job.
func (l *lab) enter(job string, change ...func(*request.Said)) (node.Membership, error) {
	m := l.request(0, 0, 1)
	m.Job = job
	s := request.Said{
		Open:   &m,
		Config: &config.Config{Share: "s", StartTimeout: time.Minute},
		Order:  &request.Order{Digest: "none"},
	}
	s.Config.Origins = map[string]config.Origin{"share": {Source: "argument"}}
	for _, c := range change {
		c(&s)
	}
	return l.groups.Enter(l.t.Context(), s)
}

// must is enter for a job that is not refused.
func (l *lab) must(job string, change ...func(*request.Said)) node.Membership {
	l.t.Helper()
	p, err := l.enter(job, change...)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// join makes the lab's rank a member.
func (l *lab) join(p node.Membership) job.Member {
	l.t.Helper()
	m, err := p.Join(l.t.Context(), l.member, l.open)
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

// The producers that were opened must be those of these jobs.
func (l *lab) wants(jobs ...string) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, want := fmt.Sprint(l.opened), fmt.Sprint(jobs); got != want {
		l.t.Errorf("opened %s, want %s", got, want)
	}
}

func seedless(s *request.Said) { s.Open.Stream.Seed = nil }

// TestGroupsOfANode: each case begins without groups, and must leave none.
func TestGroupsOfANode(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, l *lab){
		"members take the seed of the first one, until the last has left": func(t *testing.T, l *lab) {
			a, b := l.must("a", seedless), l.must("b", seedless)
			if *a.Seed() != *b.Seed() {
				t.Errorf("the seeds are %d and %d", *a.Seed(), *b.Seed())
			}
			a.Leave()
			if c := l.must("c", seedless); *c.Seed() != *b.Seed() {
				t.Errorf("the seed is %d, and was %d", *c.Seed(), *b.Seed())
			} else {
				c.Leave()
			}
			b.Leave()
			d := l.must("d", seedless)
			if *d.Seed() == *b.Seed() {
				t.Error("another group has the same seed")
			}
			d.Leave()
		},
		"a job that differs is refused, and the group goes on": func(t *testing.T, l *lab) {
			a := l.must("a")
			_, err := l.enter("b", func(s *request.Said) { s.Open.Stream.DropLast = true })
			if err == nil || !strings.Contains(err.Error(), "drop_last is true in this job") {
				t.Error(err)
			}
			l.must("c").Leave()
			a.Leave()
			l.must("b", func(s *request.Said) { s.Open.Stream.DropLast = true }).Leave()
		},
		"loaders of a script are in groups of their own": func(t *testing.T, l *lab) {
			variable := func(loader string) func(*request.Said) {
				return func(s *request.Said) {
					s.Config.Origins = map[string]config.Origin{"share": {Source: "environment"}}
					s.Open.Share.Loader = loader
				}
			}
			a, b := l.must("a", seedless, variable("0")), l.must("b", seedless, variable("1"))
			if *a.Seed() == *b.Seed() {
				t.Error("both have one group")
			}
			a.Leave()
			b.Leave()
		},
		"the producer is opened by the first member, and closed with the last membership": func(
			t *testing.T, l *lab,
		) {
			a, b := l.must("a"), l.must("b")
			l.wants()
			one, two := l.join(a), l.join(b)
			l.wants("share s")
			one.Close()
			a.Leave()
			three := l.join(b)
			two.Close()
			three.Close()
			l.wants("share s")
			if jobs := len(l.nodes[0].Reports()); jobs != 2 {
				t.Errorf("%d jobs are open, want the member and the producer", jobs)
			}
			b.Leave()
			b.Leave() // does nothing
			if jobs := len(l.nodes[0].Reports()); jobs != 1 {
				t.Errorf("%d jobs are open, want the member", jobs)
			}
			c := l.must("c")
			l.join(c).Close()
			l.wants("share s", "share s")
			c.Leave()
		},
		"members that come at once open one producer": func(t *testing.T, l *lab) {
			l.wait = make(chan struct{})
			var coming, joined sync.WaitGroup
			joined.Add(8)
			for i := range 8 {
				coming.Go(func() {
					p := l.must(fmt.Sprint(i))
					l.join(p).Close()
					joined.Done()
					joined.Wait()
					p.Leave()
				})
			}
			synctest.Wait()
			close(l.wait)
			coming.Wait()
			l.wants("share s")
		},
		"a producer that cannot be opened is tried again by the next member": func(
			t *testing.T, l *lab,
		) {
			a, b := l.must("a"), l.must("b")
			l.fails = errors.New("no memory")
			if _, err := a.Join(t.Context(), l.member, l.open); !errors.Is(err, l.fails) {
				t.Error(err)
			}
			l.fails = nil
			l.join(b).Close()
			l.wants("share s", "share s")
			a.Leave()
			b.Leave()
		},
		"a process that dies while it opens the producer leaves that to the next one": func(
			t *testing.T, l *lab,
		) {
			a, b := l.must("a"), l.must("b")
			l.wait = make(chan struct{})
			dies, cancel := context.WithCancel(t.Context())
			var joining sync.WaitGroup
			joining.Go(func() {
				if _, err := a.Join(dies, l.member, l.open); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				a.Leave()
			})
			synctest.Wait()
			joining.Go(func() { l.join(b).Close() })
			synctest.Wait()
			cancel()
			synctest.Wait()
			close(l.wait)
			joining.Wait()
			l.wants("share s", "share s")
			b.Leave()
		},
		"a member that waits for another one to open the producer may die": func(
			t *testing.T, l *lab,
		) {
			a, b := l.must("a"), l.must("b")
			l.wait = make(chan struct{})
			var joining sync.WaitGroup
			joining.Go(func() { l.join(a).Close() })
			synctest.Wait()
			dies, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := b.Join(dies, l.member, l.open); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			b.Leave()
			close(l.wait)
			joining.Wait()
			l.wants("share s")
			a.Leave()
		},
		"a member that sees another version of the dataset is refused": func(t *testing.T, l *lab) {
			a := l.must("a")
			l.join(a).Close()
			other := l.jobs(1, 1, alone, func(m *request.Open) {
				m.Job, m.Dataset.Path = "other", "/other"
			})
			b := l.must("b")
			_, err := b.Join(t.Context(), other[0][0], l.open)
			if err == nil || !strings.Contains(err.Error(), "another version of /data") {
				t.Error(err)
			}
			closeAll(other)
			a.Leave()
			b.Leave()
		},
		"a job waits while a group of the name ends": func(t *testing.T, l *lab) {
			ending := &group{name: "s", ended: make(chan struct{})}
			l.groups.all["s"] = ending
			var coming sync.WaitGroup
			coming.Go(func() { l.must("a").Leave() })
			synctest.Wait()
			if l.groups.all["s"] != ending {
				t.Error("it did not wait")
			}
			l.groups.forget(ending)
			close(ending.ended)
			coming.Wait()
		},
		"a storm of members leaves nothing": func(t *testing.T, l *lab) {
			var storm sync.WaitGroup
			for i := range 40 {
				storm.Go(func() {
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					p := l.must(fmt.Sprint(i))
					if i%3 > 0 {
						m := l.join(p)
						time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
						m.Close()
					}
					p.Leave()
				})
			}
			storm.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				run(t, l)
				l.end()
			})
		})
	}
}
