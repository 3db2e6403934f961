package cluster

import (
	"errors"
	"strings"
	"testing"
)

func TestLocalFindsAnAddressOfThisHost(t *testing.T) {
	for what, want := range map[string]string{
		"": "", "lo": "127.0.0.1", "127.0.0.1": "127.0.0.1", "127.1.2.3": "127.1.2.3",
		"127.0.0.0/8": "127.0.0.1", "localhost": "127.0.0.1",
	} {
		if got, err := Local(1, what); got != want || err != nil {
			t.Errorf("%s is %q, %v", what, got, err)
		}
	}
	for _, what := range []string{
		"233.252.0.1", "233.252.0.0/24", "nosuch0.invalid", "2001:db8::1",
		"127.0.0.1/33",
	} {
		_, err := Local(1, what)
		if !errors.As(err, new(*AddressError)) ||
			!strings.HasPrefix(err.Error(), "node 1 could not use "+what+" (interface): ") ||
			!strings.Contains(err.Error(), "lo 127.0.0.1") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
