package process

import (
	"fmt"
	"regexp"

	"github.com/hdmlp/hdmlp/internal/failure"
)

var ofRank = regexp.MustCompile(`^rank (\d+)(?: on node (\d+) \((.+?)\))? stopped: `)

// detailed returns a stream's error; ErrWrong if it is said to be another rank's, and its details
// name another rank or node than its text.
func detailed(err error) error {
	m := ofRank.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	details := failure.Of(err).Details
	for i, key := range []string{"rank", "node", "host"} {
		if m[i+1] != "" && fmt.Sprint(details[key]) != m[i+1] {
			return fmt.Errorf("%w: the %s of an error is %v in its details: %w", ErrWrong, key,
				details[key], err)
		}
	}
	return err
}
