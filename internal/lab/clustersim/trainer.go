package clustersim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/judge"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/process"
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// trainer is a process in training.
type trainer struct {
	*launch
	*process.Process
	rank     int
	position int            // of the next batch
	start    int            // of the stream
	before   int            // start of the stream before; 0: there was none
	errors   int            // that streams ended with, if the process begins again alone
	failed   bool           // the stream ended with an error
	undone   bool           // and another process did not finish the batch before
	closed   bool           // the process has ended
	over     bool           // the process has nothing more to do
	complete bool           // all batches were taken
	took     map[int]bool   // by number, the breaks to go back that have happened
	isBack   bool           // it has gone back, and taken no batch since
	asked    sync.WaitGroup // audits that were asked for meanwhile
	heard    map[int]bool   // the nodes that have answered about the job
}

func (t *trainer) note(k judge.Kind, ids []int, text string) {
	t.add(judge.Event{
		Kind: k, Rank: t.rank, Epoch: t.position / t.Steps(), Step: t.position % t.Steps(),
		IDs: ids, Text: text,
	})
}

// train takes batches from t.position on, and trains on them.
func (t *trainer) train(ctx context.Context) error {
	t.failed = false
	t.before = t.start
	t.start = t.position
	t.note(judge.Began, nil, "")
	if t.position == t.script.Epochs*t.Steps() { // another launch has come to the end
		t.note(judge.Ended, nil, "")
		t.over, t.complete = true, true
		return nil
	}
	if err := t.Begin(t.position); err != nil {
		return t.fail(judge.Refused, err)
	}
	broken := false // another process has failed
	for {
		within, cancel := ctx, context.CancelFunc(func() {})
		if broken {
			within, cancel = context.WithTimeout(ctx, errorTimeout)
		}
		if f := t.paused(t.rank, t.WorldSize()); f != nil {
			select {
			case <-f.over:
			case <-ctx.Done():
			}
		}
		asked := time.Now()
		b, err := t.Next(within)
		wait := time.Since(asked)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && broken:
			return t.fail(judge.Stuck, err)
		case errors.Is(err, process.ErrEnd):
			t.note(judge.Ended, nil, "")
			t.over, t.complete = true, true
			t.testify(ctx)
			if t.lateAudit() && t.position > t.start {
				t.last(ctx)
			}
			return nil
		case errors.Is(err, process.ErrWrong):
			return t.fail(judge.Wrong, err)
		case err != nil:
			t.failed, t.undone = true, broken
			t.mismatched(t.rank, err)
			return t.fail(judge.Failed, err)
		}
		ids := []int{}
		for _, id := range b.IDs {
			ids = append(ids, int(id))
		}
		t.add(judge.Event{
			Kind: judge.Got, Rank: t.rank, Epoch: b.Epoch, Step: b.Step, IDs: ids, Wait: wait,
		})
		if broken {
			return t.fail(judge.Stuck, errors.New("a batch instead of the error of another rank"))
		}
		if !sleep(ctx, t.script.Step.D()) {
			return ctx.Err()
		}
		if err := t.Trained(); err != nil {
			return t.fail(judge.Wrong, err)
		}
		t.position++
		if t.position%8 == 0 {
			t.examine(ctx)
		}
		t.remember(ctx)
		if t.script.Apart {
			t.crew.Advance(t.rank, t.position)
		} else {
			ok, err := t.crew.Finish(ctx, t.position-1, t.errors)
			if err != nil {
				return err
			}
			if t.isBack && ok {
				t.reread(ctx)
			}
			if broken = !ok; broken && !sleep(ctx, breaks) {
				return ctx.Err()
			}
		}
		last := t.position == t.script.Epochs*t.Steps()
		if t.position%t.Steps() == 0 && !broken && t.audited() && (last || !t.script.Apart) &&
			!(last && t.lateAudit()) {
			t.audit(ctx, t.position/t.Steps()-1)
		}
		if b := t.breaks(); b != nil && !broken {
			t.position = b.Next(t.position, t.script.Epochs, t.Steps())
			if b.Back > 0 {
				t.isBack = true
				if err := t.crew.Back(ctx, t.position); err != nil {
					return err
				}
			}
			if b.Anew && t.isReplaced() && !t.replace(ctx) {
				return errReplaced
			}
			return t.train(ctx)
		}
		if t.odd(t.rank) && t.position == t.Steps() {
			switch t.script.Differs {
			case script.TheEpoch:
				t.position += t.Steps()
				return t.train(ctx)
			case script.ThePause:
				sleep(ctx, script.Pauses)
			case script.TheEnd:
				if t.script.Apart { // others are through when it ends
					sleep(ctx, script.Pauses)
				}
				t.note(judge.Left, nil, "")
				t.over, t.complete = true, true
				return nil
			}
		}
	}
}

// breaks returns the break before the next batch; nil: there is none. Going back happens once.
func (t *trainer) breaks() *script.Break {
	for i, b := range t.script.Breaks {
		if b.After == t.position-1 && !t.took[i] {
			t.took[i] = b.Back > 0
			return &t.script.Breaks[i]
		}
	}
	return nil
}

// fail notes how the process fails, of which the others learn.
func (t *trainer) fail(k judge.Kind, err error) error {
	t.note(k, nil, err.Error())
	t.over = k != judge.Failed || t.script.Again == 0
	if t.script.Singly && k == judge.Failed {
		t.errors++
		t.crew.FailAlone(t.errors)
	} else {
		t.crew.Fail(k == judge.Stuck)
	}
	return err
}
