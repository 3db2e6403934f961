package groups

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// TestNodesShareAmongTheirOwnRanks checks that jobs over several nodes are given what they are
// given alone, and that each sample is transformed once for all of them.
func TestNodesShareAmongTheirOwnRanks(t *testing.T) {
	for _, each := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			const members = 3
			w := newWorld(t, 2, nil)
			jobs := w.jobs(members, each, announced(members))
			got := train(jobs, 0, all(2*each))
			if shared, private := w.made(); shared != epochs*samples || private != 0 {
				t.Errorf("%d samples were transformed for the group and %d for members alone, "+
					"want %d and 0", shared, private, epochs*samples)
			}
			closeAll(jobs)
			w.close()
			check(t, got, 0, all(2*each))
		})
	}
}

// TestBatchesOfMembersMayDifferInSize also if the nodes see the members in another order: the
// producers of all nodes have the batches of one member.
func TestBatchesOfMembersMayDifferInSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, nil)
		jobs := w.jobs(4, 1, announced(4), func(m *request.Open) {
			m.Stream.GlobalBatch = map[string]int{"j0": 12, "j1": 24, "j2": 9, "j3": 48}[m.Job]
		})
		train(jobs, 0, 3)
		if shared, private := w.made(); shared == 0 || private != 0 {
			t.Errorf("%d samples were transformed for the group and %d for members alone", shared,
				private)
		}
		closeAll(jobs)
		w.close()
	})
}

// TestMembersTakeOneSeed if none is given, whichever comes first.
func TestMembersTakeOneSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, nil)
		jobs := w.jobs(3, 2, func(m *request.Open) { m.Stream.Seed = nil })
		for _, ranks := range jobs {
			for _, r := range ranks {
				if mine, first := r.Opened().Seed, jobs[0][0].Opened().Seed; mine != first {
					t.Errorf("the seed is %d and %d", mine, first)
				}
			}
		}
		closeAll(jobs)
		w.close()
	})
}

// TestAMemberTakesSeedZero if that is the group's: on one node, and on several.
func TestAMemberTakesSeedZero(t *testing.T) {
	for nodes := 1; nodes <= 2; nodes++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nodes, nil)
			first := w.jobs(1, 1, func(m *request.Open) { m.Stream.Seed = new(uint64) })
			later := w.jobs(1, 1, func(m *request.Open) {
				m.Job, m.Stream.Seed = "later", nil
				if m.Cluster != nil {
					m.Cluster.Address = "10.0.0.1:7000"
				}
			})
			for _, r := range later[0] {
				if seed := r.Opened().Seed; seed != 0 {
					t.Errorf("%d nodes: the seed of rank %d is %d", nodes, r.Number(), seed)
				}
			}
			closeAll(first)
			closeAll(later)
			w.close()
		})
	}
}

// TestAMemberThatDiffersIsRefusedOnAllNodes at once, with the key and both values.
func TestAMemberThatDiffersIsRefusedOnAllNodes(t *testing.T) {
	for key, change := range map[string]func(*request.Open){
		"drop_last": func(m *request.Open) { m.Stream.DropLast = true },
		"seed":      func(m *request.Open) { seed := uint64(9); m.Stream.Seed = &seed },
		"policy":    func(m *request.Open) { m.Arguments["policy"] = "minio" },
		"dataset":   func(m *request.Open) { m.Dataset.Path = "/other" },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			first := w.jobs(1, 1)
			began := time.Now()
			_, failed := w.open(t.Context(), 1, 1, change, func(m *request.Open) {
				m.Job, m.Cluster.Address = "other", "10.0.0.1:7000"
			})
			for _, err := range failed {
				if err == nil || !strings.Contains(err.Error(), key+" is") {
					t.Errorf("%s: %v", key, err)
				}
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: it took %v", key, took)
			}
			closeAll(first)
			w.close()
		})
	}
}

// TestNodesOfAnotherOrderAreRefused: a job whose node 0 is the group's node 1 has other ranks
// there.
func TestNodesOfAnotherOrderAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, nil)
		first := w.jobs(1, 1)
		var opening sync.WaitGroup
		for rank := range 2 {
			opening.Go(func() {
				m := w.request(1, rank, 1)
				m.Cluster.Address = "10.0.0.2:6000"
				_, err := w.nodes[1-rank].Open(t.Context(), m, nil, func(request.Step) {})
				if err == nil || !strings.Contains(err.Error(), "node is number 0 of 2") {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		opening.Wait()
		closeAll(first)
		w.close()
	})
}

// TestNodesMustAgreeWhetherAJobShares checks that a job which shares on one of its nodes only is
// refused there and elsewhere, and does not wait.
func TestNodesMustAgreeWhetherAJobShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, nil)
		_, failed := w.open(t.Context(), 1, 1, func(m *request.Open) {
			if m.Rank == 1 {
				delete(m.Arguments, "share")
			}
		})
		for _, err := range failed {
			if err == nil || !strings.Contains(err.Error(), "share") {
				t.Error(err)
			}
		}
		w.close()
	})
}

// TestOtherMembersGoOnWhenOneEnds on both of its nodes, or on one of them.
func TestOtherMembersGoOnWhenOneEnds(t *testing.T) {
	for _, ends := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			jobs := w.jobs(2, 1, announced(2))
			var training sync.WaitGroup
			training.Go(func() {
				train(jobs[1:], 0, 3)
				closeAll([][]*node.Rank{jobs[1][:ends]})
			})
			var got [][]*process
			training.Go(func() { got = train(jobs[:1], 0, all(2)) })
			training.Wait()
			closeAll(jobs)
			w.close()
			check(t, got, 0, all(2))
		})
	}
}

// TestAGroupThatEndedOnOneNodeIsFollowedByAnother: the member that comes next, and those after it,
// share on all nodes, and the one that is left on the other node goes on.
func TestAGroupThatEndedOnOneNodeIsFollowedByAnother(t *testing.T) {
	for gone := range 2 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, nil)
			old := w.jobs(1, 1, func(m *request.Open) {
				m.Job, m.Cluster.Address = "old", "10.0.0.1:9000"
			})
			first := train(old, 0, 2)
			old[0][gone].Close()
			jobs := w.jobs(2, 1, announced(2))
			got := train(jobs, 0, all(2))
			if _, private := w.made(); private != 0 {
				t.Errorf("%d samples were transformed for members alone", private)
			}
			left := first[0][1-gone]
			goOn([][]*process{{left}}, 1, 3)
			if left.done != nil || len(left.kept) != 3 {
				t.Errorf("the member that is left got %d batches: %v", len(left.kept), left.done)
			}
			left.rank.Close()
			closeAll(jobs)
			w.close()
			check(t, got, 0, all(2))
		})
	}
}

// TestALateJobJoinsInTheGroupsEpoch on all of its ranks, though the members are not equally far
// everywhere; and begins in epoch 0 if it does not ask for that, or was open before.
func TestALateJobJoinsInTheGroupsEpoch(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			const each = 2
			w := newWorld(t, nodes, nil)
			long := func(m *request.Open) { m.Stream.Epochs = 9 }
			join := func(m *request.Open) { m.Arguments["share_join"] = true }
			steps := all(nodes*each) / epochs
			group := w.jobs(1, each, long)
			hold := make(chan struct{})
			var training sync.WaitGroup
			for r, rank := range group[0] {
				p := &process{rank: rank, maps: make(map[uint32]*os.File), hold: hold}
				training.Go(func() { p.run(0, 0, 1+r*steps) })
			}
			synctest.Wait() // rank r is in epoch r
			want := nodes*each - 1
			for name, of := range map[string]struct {
				epoch  int
				change []func(*request.Open)
			}{
				"joins":    {want, []func(*request.Open){join, long}},
				"does not": {0, []func(*request.Open){long}},
				"goes on":  {0, []func(*request.Open){join, long, again}},
			} {
				late := w.jobs(1, each, append(of.change, func(m *request.Open) {
					m.Job = name
					if m.Cluster != nil {
						m.Cluster.Address = "10.0.0.1:9000"
					}
				})...)
				for _, r := range late[0] {
					if e := r.Opened().Epoch; e != of.epoch {
						t.Errorf("%s: rank %d is to begin in epoch %d, want %d", name, r.Number(), e,
							of.epoch)
					}
				}
				if name == "joins" {
					got := train(late, want, 4*steps)
					defer check(t, got, want, 4*steps)
				}
				closeAll(late)
			}
			close(hold)
			training.Wait()
			closeAll(group)
			w.close()
		})
	}
}

// again is of a job that was open before.
func again(m *request.Open) { m.Share.Again = true }

// TestStormOfMembers opens and closes jobs on three nodes at random times. Each gets what it gets
// alone.
func TestStormOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, nil)
		var storm sync.WaitGroup
		got := make([][][]*process, 12)
		for j := range got {
			storm.Go(func() {
				time.Sleep(time.Duration(j*j%7) * time.Second)
				jobs := w.jobs(1, 1, func(m *request.Open) {
					m.Job, m.Cluster.Address = fmt.Sprint("storm", j), fmt.Sprint("10.0.0.1:", 8000+100*j)
				})
				got[j] = train(jobs, 0, 1+j%all(3))
				closeAll(jobs)
			})
		}
		storm.Wait()
		w.close()
		for j := range got {
			check(t, got[j], 0, 1+j%all(3))
		}
	})
}
