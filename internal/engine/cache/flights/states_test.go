package flights

import (
	"testing"

	"github.com/hdmlp/hdmlp/internal/lib/invariants"
)

// TestStateTransitions checks that only the documented transitions are allowed, and that any
// other panics if invariants are enabled.
func TestStateTransitions(t *testing.T) {
	may := map[[2]state]bool{
		{flying, landing}: true, {landing, landed}: true, {flying, givenUp}: true,
		{givenUp, returned}: true,
	}
	for from := flying; from <= returned; from++ {
		for to := flying; to <= returned; to++ {
			if to.follows(from) != may[[2]state{from, to}] {
				t.Errorf("%v after %v: %v", to, from, to.follows(from))
			}
			if !invariants.Enabled {
				continue
			}
			func() {
				defer func() {
					if panics := recover() != nil; panics == may[[2]state{from, to}] {
						t.Errorf("%v after %v panics: %v", to, from, panics)
					}
				}()
				(&Flight[int, int]{state: from}).to(to)
			}()
		}
	}
}
