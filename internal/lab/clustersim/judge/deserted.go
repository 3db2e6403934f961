package judge

import (
	"strings"
	"time"

	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
)

// deserts reports whether a rank ends after the first epoch although the others go on.
func (c *court) deserts(launch, rank int) bool {
	return c.script.Differs == script.TheEnd && launch == 0 &&
		rank == c.script.Launches[0].WorldSize()-1
}

// deserted judges a launch in which the last rank ends after the first epoch. The others get what
// they would get otherwise, unless it does not give its part of the next order: then they get an
// error at once.
func (c *court) deserted(l script.Launch, events []Event) {
	given := c.script.Shuffle == "given"
	failed := 0
	var since time.Duration // when a rank had its last batch, or ended
	for _, e := range events {
		switch {
		case e.Kind == Refused:
			c.wrong(e, "a rank was refused although another one has only ended")
		case e.Kind == Got && given && e.Epoch > 0:
			c.wrong(e, "a batch of an epoch of which a rank has given no part")
		case e.Kind == Got, e.Kind == Left:
			since = e.At
		case e.Kind != Failed:
		case !given:
			c.wrong(e, "an error although another rank has only ended")
		case !strings.Contains(e.Text, " cannot be determined: "):
			c.wrong(e, "an error that does not say that no order is known")
		case e.At > since+c.script.Step.D()+news:
			c.wrong(e, "the rank waits for the part of an order that another one will not give")
		default:
			failed++
		}
	}
	if given && failed < l.WorldSize()-1 {
		c.wrong(Event{}, "not all ranks get an error although one will not give its part of an order")
	}
}
