package catalog

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/node/failure"
)

// TestAJobThatFollowsHasItsOwnCache checks that a job gets a cache by its own settings if the jobs
// before it, with others, are leaving theirs, and joins them if they stay, or do not end soon.
func TestAJobThatFollowsHasItsOwnCache(t *testing.T) {
	for name, c := range map[string]struct {
		leaves       time.Duration // when the job before has left
		stays, suits bool
		late         time.Duration // when it is known that it is leaving
		waits        time.Duration
		own          bool
	}{
		"it is known late": {
			leaves: time.Second, late: noticeTime / 2, waits: time.Second, own: true,
		},
		"it is leaving":               {leaves: time.Second, waits: time.Second, own: true},
		"it does not end":             {leaves: time.Hour, waits: leaveTimeout},
		"it stays":                    {leaves: time.Second, stays: true, waits: noticeTime},
		"it has the same settings":    {leaves: time.Second, suits: true},
		"it stays, with the same":     {leaves: time.Second, stays: true, suits: true},
		"it has just left, and waits": {leaves: 0, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf(t)
				one, other := inMemory(total), inMemory(total/2)
				before := shelf.open(t, one)
				j := by(one)
				opened := time.Now()
				j.Stays = func() bool { return c.stays || time.Since(opened) < c.late }
				if _, _, err := before.JoinCache(t.Context(), j); err != nil {
					t.Fatal(err)
				}
				left := make(chan struct{})
				time.AfterFunc(c.leaves, func() {
					defer close(left)
					before.LeaveCache()
				})
				if c.leaves == 0 {
					<-left
				}
				d, begin := shelf.open(t, other), time.Now()
				j = by(other)
				j.Suits = func(by *config.Config) bool { return c.suits && by == one }
				if err := d.AwaitEnd(t.Context(), j); err != nil {
					t.Fatal(err)
				}
				_, madeBy, err := d.JoinCache(t.Context(), j)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != c.waits || (madeBy == other) != c.own {
					t.Errorf("joined after %v; a cache of its own: %t", took, madeBy == other)
				}
				if got, want := d.Classes()[0].Capacity, int64(total); c.own && got != want/2 {
					t.Errorf("its cache has %d bytes", got)
				}
				<-left
				before.Close()
				d.LeaveCache()
				d.Close()
			})
		})
	}
}

// TestWaitingForTheEndOfAJobCanBeGivenUp checks that a job that waits for another cache can leave.
func TestWaitingForTheEndOfAJobCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newShelf(t)
		before := c.open(t, inMemory(total))
		j := by(inMemory(total))
		j.Stays = func() bool { return false }
		if _, _, err := before.JoinCache(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		d := c.open(t, inMemory(total))
		j.Suits = func(*config.Config) bool { return false }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.AwaitEnd(ctx, j); !errors.Is(err, ctx.Err()) {
			t.Errorf("given up: %v", err)
		}
		d.Close()
		before.LeaveCache()
		before.Close()
	})
}

// TestWaitingForCachesOfAnotherJobIsTold checks that a job that waits while the caches of another
// one are closed reports it after a while, and that it waits for start_timeout at most.
func TestWaitingForCachesOfAnotherJobIsTold(t *testing.T) {
	for _, limit := range []time.Duration{0, slowAfter / 2, slowAfter + time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			c := newShelf(t)
			cfg := &config.Config{SourceThreads: 1, StorageClasses: []config.StorageClass{
				fileClass(filepath.Join(t.TempDir(), "cache"), total, 1),
			}}
			last := c.open(t, cfg)
			join(t, last, cfg)
			gate, left := make(chan struct{}), make(chan struct{})
			class := &last.entry.classes[0]
			class.Store = stuckStore{class.Store, gate}
			begin := time.Now()
			go func() {
				defer close(left)
				last.LeaveCache()
				last.Close()
			}()
			synctest.Wait()
			next := &config.Config{SourceThreads: 1, StartTimeout: limit}
			d, j := c.open(t, next), by(next)
			told := make(chan time.Duration, 2)
			j.Waits = func() { told <- time.Since(begin) }
			_, _, err := d.JoinCache(t.Context(), j)
			took := time.Since(begin)
			close(told)
			if at := <-told; at != slowAfter && limit != slowAfter/2 || len(told) > 0 {
				t.Errorf("told after %v", at)
			}
			if limit == 0 || limit > closeTimeout {
				if err != nil || took != closeTimeout {
					t.Errorf("limit %v: %v after %v", limit, err, took)
				}
				d.LeaveCache()
			} else if e := new(failure.Error); !errors.As(err, &e) || e.Kind != failure.Config ||
				!strings.Contains(e.Message, "start_timeout") || took != limit {
				t.Errorf("limit %v: %v after %v", limit, err, took)
			}
			<-left
			d.Close()
			close(gate)
			synctest.Wait()
		})
	}
}
