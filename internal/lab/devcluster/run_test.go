package devcluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hdmlp/hdmlp/internal/lab/devcluster"
	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

// script runs a shell script on a cluster.
func script(t *testing.T, ctx context.Context, c *devcluster.Cluster,
	text string,
) (s *devcluster.Summary, stdout, stderr string, err error) {
	t.Helper()
	var out, complaints bytes.Buffer
	s, err = c.Run(ctx,
		devcluster.RunOptions{Args: []string{"sh", "-c", text}, Stdout: &out, Stderr: &complaints})
	return s, out.String(), complaints.String(), err
}

// TestProcessesGetTorchrunsVariables and none of an outer job.
func TestProcessesGetTorchrunsVariables(t *testing.T) {
	t.Setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
	t.Setenv("RANK", "77")
	t.Setenv("HDMLP_SECRET", "outer")
	onBoth(t, func(t *testing.T, o devcluster.Options) {
		o.Nodes = 2
		o.RanksPerNode = 2
		o.Name = "variables"
		o.Env = []string{"CACHE=/tmp/{node}/{rank}/{address}"}
		c := newCluster(t, o)
		_, stdout, _, err := script(t, context.Background(), c,
			`echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE `+
				`$CACHE $MASTER_ADDR $TORCHELASTIC_USE_AGENT_STORE- ${#HDMLP_SECRET} `+
				`${TORCHELASTIC_RUN_ID%-*}`)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for rank := range 4 {
			n := rank / 2
			want = append(want,
				fmt.Sprintf("[%d.%d] %d/4 %d/2 %d/2 /tmp/%d/%d/%s %s - 64 hdmlp-dev-variables",
					n, rank, rank, rank%2, n, n, rank, c.Node(n).Address(), c.Node(0).Address()))
		}
		got := strings.Split(strings.TrimSpace(stdout), "\n")
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestStatusIsThatOfTheFirstFailure checks also that the other ranks and all their processes are
// killed.
func TestStatusIsThatOfTheFirstFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, o devcluster.Options) {
		o.Nodes = 3
		c := newCluster(t, o)
		s, stdout, _, err := script(t, context.Background(), c,
			`setsid sleep 4242.1 & if [ $RANK = 1 ]; then exit 7; fi; `+
				`trap 'echo ended; exit 9' TERM; sleep 4242.1 & wait`)
		if err != nil {
			t.Fatal(err)
		}
		if s.ExitStatus != 7 || s.FirstFailed == nil || *s.FirstFailed != 1 || s.Interrupted ||
			len(s.Ranks) != 3 || s.Ranks[1].ExitStatus != 7 {
			t.Errorf("the summary is %+v\n%s", s, stdout)
		}
		if n := alive(t, "sleep 4242.1"); n > 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

func TestStatusOfARankKilledByASignalIs128PlusItsNumber(t *testing.T) {
	c := newCluster(t, devcluster.Options{Nodes: 1, Loopback: true})
	s, _, _, err := script(t, context.Background(), c, `kill -SEGV $$`)
	if err != nil || s.ExitStatus != 139 || s.Ranks[0].Signal != "segmentation fault" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestRunSucceedsIfAllRanksDo and kills the processes that they left.
func TestRunSucceedsIfAllRanksDo(t *testing.T) {
	onBoth(t, func(t *testing.T, o devcluster.Options) {
		o.Nodes = 2
		c := newCluster(t, o)
		for range 2 { // a cluster can run several commands
			s, _, _, err := script(t, context.Background(), c, `setsid sleep 4242.2 & exit 0`)
			if err != nil || s.ExitStatus != 0 || s.FirstFailed != nil {
				t.Errorf("%+v, %v", s, err)
			}
			if n := alive(t, "sleep 4242.2"); n > 0 {
				t.Errorf("%d processes are left", n)
			}
		}
	})
}

// TestInterruptedRunEndsSoon even if its processes ignore signals.
func TestInterruptedRunEndsSoon(t *testing.T) {
	onBoth(t, func(t *testing.T, o devcluster.Options) {
		o.Nodes = 2
		c := newCluster(t, o)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		interrupted := make(chan time.Time, 1)
		go func() {
			testkit.Until(t, "the ranks run", func() bool {
				return alive(t, "sleep 4242.3") >= 4 || ctx.Err() != nil
			})
			interrupted <- time.Now()
			cancel()
		}()
		s, _, _, err := script(t, ctx, c, `trap '' TERM INT; setsid sleep 4242.3 & sleep 4242.3`)
		// less than a second on an idle machine
		if took := time.Since(<-interrupted); took > 4*time.Second {
			t.Errorf("it took %v to end", took)
		}
		if !errors.Is(err, context.Canceled) || !s.Interrupted || s.FirstFailed != nil {
			t.Errorf("%+v, %v", s, err)
		}
		if n := alive(t, "sleep 4242.3"); n > 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// TestCommandThatCannotStartEndsTheRun and kills those that did start.
func TestCommandThatCannotStartEndsTheRun(t *testing.T) {
	c := newCluster(t, devcluster.Options{Nodes: 2, Loopback: true})
	_, err := c.Run(context.Background(),
		devcluster.RunOptions{
			Args:   []string{"/does/not/exist"},
			Stdout: os.Stdout,
			Stderr: os.Stderr,
		})
	if err == nil || !strings.Contains(err.Error(), "start rank 0 on node 0") {
		t.Errorf("the error is %v", err)
	}
}

// TestKilledClusterIsCleanedUpByTheNext kills the process that runs a cluster: its ranks die at
// once, and what they started when the next cluster is created.
func TestKilledClusterIsCleanedUpByTheNext(t *testing.T) {
	onBoth(t, func(t *testing.T, o devcluster.Options) {
		mark := marked(t)
		before := namespaces(t, mark)
		cmd := startVictim(t, `setsid sleep 4242.4 & echo ready; exec sleep 4242.5`, o)
		r, err := devcluster.Find("victim")
		if err != nil || r.Name() != "victim" || r.Len() != 2 {
			t.Fatalf("the run is %+v (%v)", r, err)
		}
		if _, err := devcluster.New(devcluster.Options{
			Nodes:    1,
			Name:     "victim",
			Loopback: true,
		}); err == nil {
			t.Error("two runs have the same name")
		}
		if !o.Loopback {
			want := devcluster.LinkState{Rate: 1e6}
			if err := r.Link(1).Set(want); err != nil {
				t.Error(err)
			}
			if got, err := r.Link(1).State(); err != nil || got != want {
				t.Errorf("the link is %+v (%v)", got, err)
			}
		} else if err := r.Link(1).Set(devcluster.LinkState{}); err == nil ||
			!strings.Contains(err.Error(), "loopback") {
			t.Errorf("a link of a loopback address: %v", err)
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		testkit.Until(t, "no rank runs", func() bool { return alive(t, "sleep 4242.5") == 0 })
		if _, err := devcluster.Find("victim"); err == nil {
			t.Error("the dead run is listed as running")
		}
		if alive(t, "sleep 4242.4") != 2 {
			t.Error("what the ranks started is gone already: this test tests nothing")
		}
		// the name is free
		newCluster(t, devcluster.Options{Nodes: 1, Name: "victim", Loopback: true})
		if alive(t, "sleep 4242.4") != 0 {
			t.Error("what the dead run's ranks started is alive")
		}
		testkit.Until(t, "no namespace is left", func() bool {
			for inode := range namespaces(t, mark) {
				if !before[inode] {
					return false
				}
			}
			return true
		})
	})
}

// TestReapKillsWhatARunLeft waits for the run's end first.
func TestReapKillsWhatARunLeft(t *testing.T) {
	cmd := startVictim(t, `setsid sleep 4242.6 & echo ready; exec sleep 4242.7`,
		devcluster.Options{Loopback: true})
	reaped := make(chan error, 1)
	go func() {
		reaped <- devcluster.Reap(os.Getenv("XDG_RUNTIME_DIR") + "/hdmlp-dev/victim.json")
	}()
	select {
	case err := <-reaped:
		t.Fatalf("a live run is reaped (%v)", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-reaped; err != nil {
		t.Fatal(err)
	}
	if n := alive(t, "sleep 4242.6"); n > 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestLinesOfManyProcessesAreWhole, have a prefix, and are complete.
func TestLinesOfManyProcessesAreWhole(t *testing.T) {
	c := newCluster(t, devcluster.Options{Nodes: 2, RanksPerNode: 2, Loopback: true})
	_, stdout, stderr, err := script(t, context.Background(), c,
		`i=0; while [ $i -lt 200 ]; do echo line $i of $RANK; echo to stderr >&2; i=$((i+1)); done; `+
			`printf 'bar\rbar 2\r\nno end'`)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if len(lines) != 4*203 {
		t.Errorf("%d lines, want %d", len(lines), 4*203)
	}
	allowed := regexp.MustCompile(
		`^\[(0\.0|0\.1|1\.2|1\.3)\] (line \d+ of [0-3]|bar|bar 2|no end)$`,
	)
	for _, l := range lines {
		if !allowed.MatchString(l) {
			t.Errorf("line %q", l)
		}
	}
	if got := strings.Count(stderr, "] to stderr\n"); got != 800 {
		t.Errorf("%d lines on stderr, want 800", got)
	}
}
