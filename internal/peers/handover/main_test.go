package handover

import (
	"os"
	"testing"

	"github.com/hdmlp/hdmlp/internal/lab/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }
