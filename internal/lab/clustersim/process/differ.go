package process

import (
	"github.com/hdmlp/hdmlp/internal/lab/clustersim/script"
	"github.com/hdmlp/hdmlp/internal/node/request"
)

// Differ gives a request another value of the setting in which a rank differs; otherPath is where
// another dataset lies.
func Differ(m *request.Open, s *script.Script, otherPath string) {
	switch s.Differs {
	case script.TheBatch:
		m.Stream.GlobalBatch++
		if m.Stream.Given != nil {
			m.Stream.Given.Batch++
		}
	case script.TheSeed:
		*m.Stream.Seed++
	case script.TheEpochs:
		m.Stream.Epochs++
	case script.ThePolicy:
		delete(m.Arguments, "policy")
		if other := s.OtherPolicy(); other != "" {
			m.Arguments["policy"] = other
		}
	case script.TheTail:
		m.Stream.Tail = map[string]string{"pad": "keep", "keep": "drop", "drop": "pad"}[m.Stream.Tail]
	case script.TheSecret:
		m.Cluster.Secret = "fedcba9876543210fedcba9876543210"
	case script.TheData:
		m.Dataset.Path = otherPath
	}
}
