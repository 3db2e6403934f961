package report

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/plan"
)

// minMentionedSaving is the share of an epoch's time that a plan which is not adopted must save to
// be mentioned.
const minMentionedSaving = 0.05

// replanned describes which plan the nodes have adopted last, and what a new one would bring that
// they have not, in sentences that begin with a space.
func replanned(rounds []plan.Replanning) (text string) {
	for i := len(rounds) - 1; i >= 0; i-- {
		r := &rounds[i]
		if !r.Adopted {
			continue
		}
		text = fmt.Sprintf(" From epoch %d on all nodes follow a new plan, because they followed "+
			"different ones.", r.From)
		switch {
		case r.Why != "":
			text = fmt.Sprintf(" From epoch %d on the job follows the plan before the last one again: "+
				"an epoch took %.3f s with it, and %.3f s since.", r.From, r.Before, r.Took)
		case r.Spared > 0:
			text = fmt.Sprintf(" From epoch %d on the job follows a new plan, made with what was "+
				"measured by then: an epoch is to read %s less from the source and to take as long, "+
				"%.3f s, for which %s are moved.", r.From, human.Format(r.Spared), r.New,
				human.Format(r.Bytes))
		case r.Seconds > 0:
			text = fmt.Sprintf(" From epoch %d on the job follows a new plan, made with what was "+
				"measured by then: an epoch is to take %.3f s instead of %.3f s, for which %s are "+
				"moved.", r.From, r.New, r.Seconds, human.Format(r.Bytes))
		}
		break
	}
	if len(rounds) == 0 {
		return text
	}
	last := &rounds[len(rounds)-1]
	// New is 0 if the plan's time was not predicted.
	switch now := last.Takes(); {
	case last.Adopted:
	case last.Before > 0 && last.Took > (1+minMentionedSaving)*last.Before:
		text += fmt.Sprintf(" An epoch took %.3f s with that plan, and %.3f s before.", last.Took,
			last.Before)
	case last.New > 0 && now-last.New > minMentionedSaving*now:
		text += fmt.Sprintf(" With a new plan an epoch would take %.3f s instead of %.3f s; it is not "+
			"adopted: %s (%s, %.3f s).", last.New, now, last.Why, human.Format(last.Bytes), last.Move)
	}
	return text
}
