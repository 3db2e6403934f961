package script

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

const (
	// Dead is how long a node that dies stays dead before its launch is ended: long enough for the
	// other nodes to take what they can get without it.
	Dead = Duration(2 * time.Minute)
	// pressed is how long memory is short at least: nodes notice within a second.
	pressed = Duration(2 * time.Second)
	// thinks is how long processes train on a batch at least where a plan fails: it may do so only
	// after batches that take no time.
	thinks = Duration(20 * time.Millisecond)
	// fails is how many epochs a job has at least where a plan fails, for the same reason.
	fails = 8
	// latest is by how much a rank or a job starts later at most: start_timeout of the jobs.
	latest = Duration(30 * time.Second)
	// longest bounds all other times.
	longest = Duration(time.Hour)
	// most bounds numbers that nothing else does.
	most = 1 << 30
)

// Check returns why a script cannot be run; nil: it can. An error says what is wrong, its value,
// and what is allowed.
func (s *Script) Check() error {
	for _, check := range []func() error{
		s.checkNumbers, s.checkTimes, s.checkWords, s.checkLaunches, s.checkSamples, s.checkEvents,
		s.checkJobs, s.checkTogether, s.checkOrder,
	} {
		if err := check(); err != nil {
			return fmt.Errorf("the script cannot be run: %w", err)
		}
	}
	return nil
}

// within returns an error if a number is not between two others, both included.
func within(what string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %d; allowed are %d to %d", what, value, least, most)
	}
	return nil
}

// lasts returns an error if a time is not between two others, both included.
func lasts(what string, value, least, most Duration) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %v; allowed are %v to %v", what, value.D(), least.D(), most.D())
	}
	return nil
}

// oneOf returns an error if a word is not one of those that are allowed.
func oneOf[T ~string](what string, value T, allowed ...T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	var quoted []string
	for _, a := range allowed {
		quoted = append(quoted, fmt.Sprintf("%q", string(a)))
	}
	return fmt.Errorf("%s: %q; allowed are %s", what, string(value), strings.Join(quoted, ", "))
}

// first returns the first error of a list; nil: there is none.
func first(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Script) checkNumbers() error {
	return first(
		within("samples", s.Samples, 1, 100_000), within("largest", s.Largest, 1, 1<<20),
		within("epochs", s.Epochs, 1, 10_000), within("batch", s.Batch, 1, 100_000),
		within("subset", s.Subset, 0, s.Samples), within("mix", s.Mix, 0, 100_000),
		within("memory", s.Memory, 0, most), within("disk", s.Disk, 0, most),
		within("staging", s.Staging, 64<<10, most), within("prefetch", s.Prefetch, 0, 1000),
		within("threads", s.Threads, 0, 64), within("hold", s.Hold, 0, 1000),
		within("again", s.Again, 0, 1000), within("rewind", s.Rewind, 0, most),
	)
}

func (s *Script) checkTimes() error {
	return first(
		lasts("source_takes", s.Takes, 0, longest), lasts("step", s.Step, 0, longest),
		lasts("source_timeout", s.Timeout, Duration(time.Millisecond), longest),
	)
}

func (s *Script) checkWords() error {
	return first(
		oneOf("shuffle", s.Shuffle, "torch", "none", "feistel", "given"),
		oneOf("scheme", s.Scheme, "strided", "uniform", "whole"),
		oneOf("tail", s.Tail, "pad", "keep", "drop"),
		oneOf("policy", plan.Base(s.Policy), append([]string{""},
			policies.Names(policies.Engine())...)...),
		oneOf("on_error", s.OnError, "raise", "skip", "substitute"),
		oneOf("plans", s.Plans, "", Meanwhile, Failing),
		oneOf("beside", s.Beside, "", Same, Other),
		oneOf("differs", s.Differs, "", TheBatch, TheSeed, TheEpochs, ThePolicy, TheTail, TheSecret,
			TheData, ThePart, TheEpoch, TheEnd, ThePause),
	)
}

// checkLaunches checks that each launch is one, and delivers something.
func (s *Script) checkLaunches() error {
	if len(s.Launches) == 0 {
		return fmt.Errorf("launches: none; at least 1 is needed")
	}
	for i, l := range s.Launches {
		what := fmt.Sprintf("launches[%d].", i)
		if err := first(
			within(what+"nodes", l.Nodes, 1, 16), within(what+"ranks", l.Ranks, 1, 16),
			within(what+"kill", l.Kill, 0, most),
			within("samples that are read, with "+what+"nodes times ranks as the least",
				s.Positions(), l.WorldSize(), most),
			within("number of "+what+"late, one per rank", len(l.Late), 0, l.WorldSize()),
		); err != nil {
			return err
		}
		for k, d := range l.Late {
			if err := lasts(fmt.Sprintf("%slate[%d]", what, k), d, 0, latest); err != nil {
				return err
			}
		}
		if whole := s.Positions() / l.WorldSize() * l.WorldSize(); s.DropLast && s.Batch > whole {
			return fmt.Errorf("batch: %d; allowed are 1 to %d with drop_last and %snodes times ranks "+
				"of %d, else there is no batch", s.Batch, whole, what, l.WorldSize())
		}
	}
	return nil
}

// checkSamples checks that the samples exist that something is wrong with.
func (s *Script) checkSamples() error {
	for _, list := range []struct {
		what string
		ids  []int
	}{{"missing", s.Missing}, {"stale", s.Stale}, {"undecodable", s.Undecodable}} {
		for _, id := range list.ids {
			if err := within(list.what, id, 0, s.Samples-1); err != nil {
				return err
			}
		}
	}
	if len(s.Stale) > 0 && !s.Verify {
		return fmt.Errorf("stale: %v; none is allowed without verify", s.Stale)
	}
	return nil
}

func (s *Script) checkEvents() error {
	for i, e := range s.Events {
		what := fmt.Sprintf("events[%d].", i)
		least, amount := Duration(0), most
		switch e.Kind {
		case Die:
			least = Dead
		case Pressure:
			least = pressed
		case SourceFail, Loss, DiskFail:
			amount = 100
		case Flip:
			amount = max(e.Of, 100)
		case DiskHang:
			amount = AllHangs
		}
		if err := first(
			oneOf(what+"kind", e.Kind, Kinds()...),
			within(what+"launch", e.Launch, 0, len(s.Launches)-1),
			lasts(what+"at", e.At, 0, longest), lasts(what+"for", e.For, least, longest),
			within(what+"node", e.Node, 0, most), within(what+"to", e.To, 0, most),
			within(what+"amount", e.Amount, 0, amount), within(what+"of", e.Of, 0, most),
		); err != nil {
			return err
		}
	}
	return nil
}

// checkJobs checks breaks and the jobs of a group.
func (s *Script) checkJobs() error {
	for i, b := range s.Breaks {
		what := fmt.Sprintf("breaks[%d].", i)
		if err := first(within(what+"after", b.After, 0, most),
			within(what+"back", b.Back, 0, most)); err != nil {
			return err
		}
		if b.Past && !b.Skip {
			return fmt.Errorf("%spast: true; allowed only with skip", what)
		}
	}
	for i, m := range s.Members {
		what := fmt.Sprintf("members[%d].", i)
		if err := first(
			within(what+"batch", m.Batch, 1, s.Samples), lasts(what+"late", m.Late, 0, latest),
			lasts(what+"step", m.Step, 0, longest), within(what+"rest", m.Rest, 0, most),
			within(what+"leave", m.Leave, 0, most),
		); err != nil {
			return err
		}
	}
	return nil
}

// checkTogether checks what excludes, or needs, something else.
func (s *Script) checkTogether() error {
	one := s.Launches[0]
	given := s.Shuffle == "given"
	for _, c := range []struct {
		wrong bool
		why   string
	}{
		{
			s.Mix > 0 && (s.Subset > 0 || s.Samples < 2 || given || s.Shuffle == "torch" || s.Orders()),
			`mix: it needs 2 samples or more, shuffle "feistel" or "none", no subset, and a policy ` +
				"without an order of its own",
		},
		{
			given && slices.ContainsFunc(s.Launches, s.cannotGive),
			`shuffle: "given"; all launches must have as many ranks, which divide batch, and several ` +
				"ranks several nodes",
		},
		{
			slices.Contains(inMemory(), s.Policy) && (s.Memory < s.Bytes() || s.Uneven || s.Plans != "" ||
				s.Differs == ThePolicy || len(s.Members) > 0),
			fmt.Sprintf("policy: %q; allowed only if the memory of each node holds the dataset, and "+
				"without uneven, plans, members and other policies", s.Policy),
		},
		{
			s.Plans == Failing && s.Policy != "",
			fmt.Sprintf("policy: %q; only the default is allowed with plans %q", s.Policy, Failing),
		},
		{
			s.Plans == Failing && s.Step < thinks,
			fmt.Sprintf("step: %v; allowed are %v and more with plans %q", s.Step.D(), thinks.D(),
				Failing),
		},
		{
			s.Plans == Failing && s.Epochs < fails,
			fmt.Sprintf("epochs: %d; allowed are %d and more with plans %q", s.Epochs, fails, Failing),
		},
		{ // without other ranks the node would leave the job
			s.Replaces() && (len(s.Launches) > 1 || one.Ranks == 1 || s.Apart || given),
			"breaks: anew is allowed only with 1 launch of at least 2 ranks per node, and without " +
				`apart and shuffle "given"`,
		},
		{
			s.Has(Vanish) && (s.OnError == "raise" || len(s.Members) > 0),
			`events: "vanish"; allowed only with on_error "skip" or "substitute", and without members`,
		},
		{
			s.Has(Vanish) && s.unusable() >= s.Positions(),
			fmt.Sprintf(`events: "vanish"; of the %d samples that are read one at least must stay that `+
				"is not missing and can be decoded", s.Positions()),
		},
		{
			len(s.Members) > 0 && (!s.Transforms || len(s.Launches) > 1 || s.Differs != ""),
			"members: they need transforms, 1 launch, and nothing that differs",
		},
		{
			s.Differs != "" && one.WorldSize() == 1,
			fmt.Sprintf("differs: %q; the first launch must have at least 2 ranks", s.Differs),
		},
		{
			s.Differs == TheSecret && one.Nodes == 1,
			fmt.Sprintf("differs: %q; the first launch must have at least 2 nodes", s.Differs),
		},
		{
			s.Differs == TheData && (s.Beside != "" || given),
			fmt.Sprintf(`differs: %q; allowed only without beside and shuffle "given"`, s.Differs),
		},
		{
			slices.Contains([]Setting{ThePart, TheEpoch, ThePause}, s.Differs) && !given,
			fmt.Sprintf(`differs: %q; allowed only with shuffle "given"`, s.Differs),
		},
		{
			slices.Contains([]Setting{ThePart, TheEpoch, TheEnd, ThePause}, s.Differs) &&
				(s.Epochs < 3 || len(s.Breaks) > 0 || s.Apart && (given || s.Differs != TheEnd)),
			fmt.Sprintf("differs: %q; allowed only with at least 3 epochs, and without breaks and "+
				"apart", s.Differs),
		},
		{
			s.Differs == TheEnd && (!s.Calm() || len(s.Launches) > 1),
			fmt.Sprintf("differs: %q; allowed only with 1 launch, in which nothing goes wrong",
				s.Differs),
		},
	} {
		if c.wrong {
			return fmt.Errorf("%s", c.why)
		}
	}
	return nil
}

// cannotGive reports whether the ranks of a launch cannot give the order.
func (s *Script) cannotGive(l Launch) bool {
	return s.Batch%l.WorldSize() != 0 || l.WorldSize() != s.Launches[0].WorldSize() ||
		l.Nodes == 1 && l.Ranks > 1
}

// valid reports whether the script can be run.
func (s *Script) valid() bool { return s.Check() == nil }
