package process

import (
	"cmp"
	"fmt"
	"regexp"

	"github.com/hdmlp/hdmlp/internal/node/failure"
	"github.com/hdmlp/hdmlp/internal/node/request"
	"github.com/hdmlp/hdmlp/internal/plan/policies"
)

var ofRank = regexp.MustCompile(`^rank (\d+)(?: on node (\d+) \((.+?)\))? stopped: `)

// Mismatched returns what is wrong with the details of an error by which ranks disagree, for a rank
// with request m; "": nothing.
func Mismatched(err error, m request.Open) string {
	e := failure.Of(err)
	own, known := map[string]any{
		"seed": *m.Stream.Seed, "epochs": m.Stream.Epochs, "global batch size": m.Stream.GlobalBatch,
		"tail": m.Stream.Tail, "policy": cmp.Or(m.Arguments["policy"], any(policies.Default().Name())),
	}[fmt.Sprint(e.Details["key"])]
	mine, theirs := fmt.Sprint(e.Details["mine"]), fmt.Sprint(e.Details["theirs"])
	if e.Kind != failure.Mismatch || !known || ofRank.MatchString(e.Message) ||
		mine == fmt.Sprint(own) && theirs != mine {
		return ""
	}
	return fmt.Sprintf("a rank with %v is told %s, and %s of others: %v", own, mine, theirs, err)
}

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
